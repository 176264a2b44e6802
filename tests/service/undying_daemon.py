"""`lorad serve` on a system whose SIGKILL does nothing to a worker: it waits for a device."""

import os
import sys

from service.cli.main import main

os.killpg = lambda group, number: None
sys.argv = ["lorad", "serve"]
main()
