"""`lorad serve` that is killed at a point of its code: DIE_AT=module:function:before|after."""

import importlib
import os
import signal
import sys
from typing import Any

from service.cli.main import main

module_name, path, when = os.environ["DIE_AT"].split(":")
owner: Any = importlib.import_module(module_name)
*outer, name = path.split(".")
for part in outer:
    owner = getattr(owner, part)
original = getattr(owner, name)


def dying(*arguments: Any, **options: Any) -> Any:
    if when == "after":
        original(*arguments, **options)
    os.kill(os.getpid(), signal.SIGKILL)


setattr(owner, name, dying)
sys.argv = ["lorad", "serve"]
main()
