"""A child that can't outlive its parent: `python -m npu.with_parent PID MODULE ARGUMENTS`.

The worker and the doctor wait for a child that holds torch. If one of them is killed, nobody would
end the child at its time limit, while the next worker already loads torch beside it.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def main() -> None:
    """Become the module, to be killed with the process PID."""
    parent, module = int(sys.argv[1]), sys.argv[2]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above
        os.kill(os.getpid(), signal.SIGKILL)
    sys.argv = sys.argv[2:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
