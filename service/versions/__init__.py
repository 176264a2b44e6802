"""The life of versions: activated, kept, imported, deleted."""
