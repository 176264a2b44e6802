"""Who the clients are: tokens, pairing, the keys by which the daemon proves itself."""
