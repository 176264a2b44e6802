"""Runs, from the trigger to the end: the queue, the one worker, what it says, how it is steered."""
