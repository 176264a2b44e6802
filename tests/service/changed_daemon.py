"""`lorad serve` with other constants, to be waited for less: CHANGED={"module:name": value}."""

import importlib
import json
import os
import sys

from service.cli.main import main

for where, value in json.loads(os.environ["CHANGED"]).items():
    module_name, name = where.split(":")
    module = importlib.import_module(module_name)
    assert type(getattr(module, name)) is type(value), f"expected a constant, found no {where}"
    setattr(module, name, value)

sys.argv = ["lorad", "serve"]
main()
