"""Sleeps, in the place of a self-test that hangs."""

import time

print("asleep", flush=True)
time.sleep(600)
