"""Prints the OpenAPI document that the daemon serves, without a daemon."""

import json
from unittest.mock import MagicMock

from service.app import create_app

app = create_app(MagicMock(), MagicMock(), port=8765, version="0")
print(json.dumps(app.openapi(), sort_keys=True))
