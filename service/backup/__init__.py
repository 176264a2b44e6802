"""Backups: a home in one file, and back."""
