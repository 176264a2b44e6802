"""What the daemon tells Prometheus: its text format, written here."""
