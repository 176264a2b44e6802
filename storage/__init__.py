"""What is kept: clients, adapters, examples, runs and versions in one SQLite file."""
