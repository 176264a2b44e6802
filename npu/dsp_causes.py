"""Why the NPU of an Android phone refused: the lines of QNN and FastRPC that say so.

They come from phones of others, in public reports (onnxruntime, onnxruntime-qnn, executorch,
qualcomm's fastrpc, ai-hub-apps and GenieX); none was seen on a phone of ours. The order matters:
what explains another line comes before it. A denied node of /dev is no cause: where apps may use
the DSP, a service of the system opens it for them, after just such a line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

KEEP_THE_CPU = "lorad trains on the CPU without it"
_ONE_RELEASE = (
    "take all libraries from one release: `sh termux/fetch-qnn.sh` puts them in place and compares "
    "their versions"
)
_POLICY = f"the phone's maker decides that, an update of the system may change it; {KEEP_THE_CPU}"


@dataclass(frozen=True)
class DspCause:
    """A line that says it, and what it means."""

    pattern: str
    cause: str
    """With what the pattern's groups found, from `{1}` on."""
    remedy: str
    unless: str | None = None
    """Another line with which it means nothing."""


DSP_CAUSES = (
    DspCause(
        r"(Stub|Skel) lib id mismatch: expected \(?(v[\d.]+)[^)\n]*\)?,\s*detected \(?(v[\d.]+)",
        "QNN's {1} library is of version {3}, and libQnnHtp.so of {2}",
        _ONE_RELEASE,
    ),
    DspCause(
        r"requested API version \[(\d+)\] is not available, only API versions \[1, (\d+)\]",
        "the QNN provider was built for a newer onnxruntime than this one: it asks for API {1}, "
        "found {2}",
        "update onnxruntime (`pkg upgrade`), or take an older onnxruntime-android-qnn",
    ),
    DspCause(
        r"Unable to find a valid interface for (\S+)",
        "{1} is older than the QNN provider needs",
        "take the release of qnn-runtime that onnxruntime-android-qnn names, or a newer one, with "
        "`sh termux/fetch-qnn.sh`",
    ),
    DspCause(
        r"(?:[Uu]nrecognized|[Uu]nknown|[Ii]nvalid|[Uu]nsupported)(?: config)? "
        r"(?:soc|SoC)_?(?:[Mm]odel)?\b[^\n]*|soc_model is not specified",
        "QNN does not know this phone's SoC: {0}",
        "name the Snapdragon most like it in LORAD_SOC (SM8550, SM8650, SM8750 or SM8850) and test "
        "again, or take a newer qnn-runtime",
    ),
    DspCause(
        r"(libQnnHtpV\d+Skel\.so)[^\n]*(?:No such file|errno 2\b|error_code 0x2\b)|"
        r"(?:No such file|errno 2\b|error_code 0x2\b)[^\n]*(libQnnHtpV\d+Skel\.so)",
        "the DSP does not find {1}",
        "it must lie beside the other libraries, with mode 0644: `sh termux/fetch-qnn.sh`",
        unless=r"Successfully opened [^\n]*libQnnHtpV\d+Skel\.so",
    ),
    DspCause(
        r"open_shell failed[^\n]*Permission denied|avc: +denied[^\n]*fastrpc_shell",
        "apps of this phone may not start the DSP's shell (fastrpc_shell: Permission denied)",
        _POLICY,
        unless=r"Successfully opened [^\n]*fastrpc_shell|Created user PD",
    ),
    DspCause(
        r"(?:apps_dev_init|open_dev)[^\n]*failed for domain[^\n]*File exists",
        "this process has opened the DSP before, and it can't be opened twice",
        f"an update of the system may help; {KEEP_THE_CPU}",
    ),
    DspCause(
        r"(?:apps_dev_init|open_dev|open_device_node|open_hal_session)[^\n]*"
        r"(?:failed|Permission denied|Operation not permitted)",
        "this phone refuses apps the NPU's device (SELinux)",
        _POLICY,
    ),
    DspCause(
        r"Failed to load skel, error: *(\d+)|Transport layer setup failed: *(\d+)|"
        r"Unable to load Skel Library[^\n]*?(\d+)|"
        r"qnn_open failed, (0x[0-9a-fA-F]+)|Failed to create device\. Error: *(\w+)|"
        r"(QNN_DEVICE_ERROR_INVALID_CONFIG)",
        "the DSP did not load its half of QNN, the skel ({1})",
        "the libQnnHtpV…Skel.so of this phone's HTP must lie beside the other libraries, of the "
        "same release and with mode 0644: `sh termux/fetch-qnn.sh` checks that",
    ),
)


def dsp_cause(text: str) -> tuple[str, str] | None:
    """The cause and the remedy that lines of a log mean; None if none of them is known."""
    for known in DSP_CAUSES:
        found = re.search(known.pattern, text)
        if found is None or (known.unless is not None and re.search(known.unless, text)):
            continue
        named = [group for group in found.groups() if group is not None]
        return known.cause.format(" ".join(found[0].split())[:120], *named), known.remedy
    return None
