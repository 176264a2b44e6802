"""What crosses HTTP: every request, answer and problem, and all validation of what comes in."""
