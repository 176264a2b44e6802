"""All that a worker has loaded when it trains, but `trainer.worker`; see `tests.fork_server`."""

import importlib
import os

os.environ["GOMP_SPINCOUNT"] = "10000"  # as the worker sets it before it loads torch
os.environ["OPENBLAS_NUM_THREADS"] = "1"  # numpy's would begin when it is loaded
importlib.import_module("trainer.run")
