"""The command `lorad`."""
