"""All that a daemon has loaded when it serves; see `tests.fork_server`."""

import importlib
import sys

import service.cli.serve

assert service.cli.serve
sys.modules["pydantic.v1"] = None  # type: ignore[assignment]  # as `serve` does, before the rest
importlib.import_module("service.daemon")
