"""The same numbers from the same inputs, every time, on the same machine."""

import torch


def be_deterministic() -> None:
    """Let torch use only algorithms that always add in the same order, in this process.

    Not `torch.use_deterministic_algorithms`, which does the same but loads torch's compiler to tell
    it, too: 68 MB and some seconds for a compiler that nothing here uses. Nor is new memory filled
    with NaN, as torch does in this mode unless told otherwise: what is read was written before.
    """
    torch.set_deterministic_debug_mode("error")
    setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)  # noqa: B010
