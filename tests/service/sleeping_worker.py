"""A worker that hears nothing: it neither reads its standard input nor obeys SIGTERM."""

import signal
import time

signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(600)
