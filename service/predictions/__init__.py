"""Predictions: who is asked, in which order, and what becomes of it."""
