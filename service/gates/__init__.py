"""Conditions for training: each with a verdict, its reading, its limit and a reason."""
