"""For developers of other apps: their page, and a client to copy."""
