"""The routes, a module per noun."""
