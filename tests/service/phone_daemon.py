"""`lorad serve` with other times: KEEP_SECONDS of the wake lock, COMMAND_SECONDS of its calls."""

import os
import sys
from functools import partial

from service.cli.main import main
from service.phone import phone, wake_lock
from service.phone.command import Command
from service.termux_program import SECONDS

wake_lock.KEEP_SECONDS = float(os.environ.get("KEEP_SECONDS", wake_lock.KEEP_SECONDS))
seconds = float(os.environ.get("COMMAND_SECONDS", SECONDS))
phone.Command = partial(Command, seconds=seconds)  # type: ignore[assignment, misc]
sys.argv = ["lorad", "serve"]
main()
