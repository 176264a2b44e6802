"""`lorad serve` that tells, when it ends, which modules it had loaded."""

import json
import os
import sys
from pathlib import Path

from service.cli.main import main

sys.argv = ["lorad", "serve"]
try:
    main()
finally:
    Path(os.environ["LORAD_HOME"], "modules.json").write_text(json.dumps(sorted(sys.modules)))
