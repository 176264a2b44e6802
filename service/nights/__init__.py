"""Nights: when training may proceed, who trains, and what became of it."""
