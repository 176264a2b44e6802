"""The daemon: HTTP for apps, the worker's supervisor, and the command line."""
