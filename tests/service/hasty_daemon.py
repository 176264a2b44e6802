"""`lorad serve` that lets nobody wait for having had no token: for tests that ask often without."""

import sys

from service.cli.main import main
from service.door import penalty

penalty.SECONDS = 0.0
sys.argv = ["lorad", "serve"]
main()
