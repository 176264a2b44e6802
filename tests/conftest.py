"""What holds for every test: no network, nobody's own settings, no deadline for a busy machine."""

import os
import signal
from collections import Counter

import pytest
from hypothesis import settings

os.environ["HF_HUB_OFFLINE"] = "1"  # read by transformers and peft when they are first imported
for name in [name for name in os.environ if name.startswith("LORAD_")]:
    del os.environ[name]

# A background job of a script ignores Ctrl-C, and so would the commands that the tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("lorad", deadline=None)
# hypothesis' own profile "ci" draws the same examples in every run.
settings.load_profile("ci" if os.environ.get("CI") else "lorad")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests first: at the end no process of tests waits long for another."""
    tests = Counter(item.path for item in items)
    slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
    items.sort(key=lambda item: (-slow[item.path], -tests[item.path], item.path))
