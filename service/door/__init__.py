"""What stands between the socket and the routes: guards, limits, strict bodies, problems."""
