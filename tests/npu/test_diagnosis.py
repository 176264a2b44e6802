"""From the end of a self-test to its cause and remedy, each a sentence; also ends nobody can make.

The messages are those of glibc's and Android's loaders, of Python and of onnxruntime.
"""

from __future__ import annotations

import re
import signal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu.diagnosis import diagnose
from npu.dsp_causes import DSP_CAUSES
from npu.selftest_child import SelfTestEnd


def end(code: int | None = 1, **what: Any) -> SelfTestEnd:
    fields: dict[str, Any] = {"report": None, "stderr": "", "seconds": 3.0}
    return SelfTestEnd(code=code, **fields | what)


def failed(cause: str | None, cases: Any = ()) -> SelfTestEnd:
    return end(report={"passed": False, "cause": cause, "cases": list(cases)})


@pytest.mark.parametrize(
    ("how", "cause", "remedy", "again"),
    [
        (
            failed("onnxruntime-qnn can't be loaded: No module named 'onnxruntime_qnn'"),
            "the Python package onnxruntime_qnn is not installed",
            "pip",
            False,
        ),
        (
            failed(
                "the QNN provider can't be registered: libcdsprpc.so: cannot open shared object"
            ),
            "the library libcdsprpc.so, through which a Snapdragon's NPU is reached, can't be",
            "phone's own system",
            False,
        ),
        (
            failed(
                "the QNN provider can't be registered: libQnnHtp.so: cannot open shared object "
                "file: No such file or directory"
            ),
            "the library libQnnHtp.so is missing",
            "onnxruntime-qnn anew",
            False,
        ),
        (
            failed(
                'onnxruntime-qnn can\'t be loaded: dlopen failed: library "libc.so.6" not found'
            ),
            "the library libc.so.6 is missing",
            "install",
            False,
        ),
        (
            failed(
                "the QNN provider can't be registered: /lib/libc.so.6: version `GLIBC_2.34' not "
                "found (required by libonnxruntime_providers_qnn.so)"
            ),
            "older than GLIBC_2.34",
            "newer system",
            False,
        ),
        (
            failed("the QNN provider can't be registered: bad ELF"),
            "the QNN provider can't be registered: bad ELF",
            "constraints.txt",
            False,
        ),
        (
            failed("expected a device of onnxruntime-qnn, found none: its libraries don't fit"),
            "finds no NPU on this device",
            "trains on the CPU",
            False,
        ),
        (
            failed("onnxruntime could not open a graph: QNN_GRAPH_ERROR_INVALID_TENSOR"),
            "could not open a graph: QNN_GRAPH_ERROR_INVALID_TENSOR",
            "update",
            False,
        ),
        (
            failed("onnxruntime could not open a graph: MEM_ALLOC 1002"),
            "memory ran out",
            "close other apps",
            True,
        ),
        (
            failed("the self-test (int8, forward) could not run: the graph failed: SSR"),
            "the graph failed: SSR",
            "update",
            False,
        ),
        (failed("[Errno 28] No space left on device"), "the disk is full", "free some", True),
        (
            failed(
                None,
                [
                    {"format": "int8", "direction": "forward", "passed": False},
                    {"format": "fp16", "direction": "forward", "passed": True},
                ],
            ),
            "wrong numbers: the self-test failed for int8 forward$",
            "nothing was trained",
            False,
        ),
        (failed(None), "a case it does not name", "nothing was trained", False),
        (
            end(1, stderr="Traceback\n  File x\nOSError: [Errno 28] No space left on device\n"),
            "the disk is full",
            "free some",
            True,
        ),
        (
            end(1, stderr="ModuleNotFoundError: No module named 'torch'"),
            "package torch is not installed",
            "pip",
            False,
        ),
        (
            end(7, stderr="\n what?. \n\n"),
            "ended with code 7 and no report: what\\?$",
            "CPU",
            False,
        ),
        (end(2), "ended with code 2 and no report: it said nothing", "CPU", False),
        (end(-signal.SIGSEGV), "ended by SIGSEGV: it reached for memory", "update", False),
        (end(-signal.SIGABRT), "ended by SIGABRT", "update", False),
        (end(-signal.SIGILL), "ended by SIGILL: it holds an instruction", "update", False),
        (end(-signal.SIGSYS), "ended by SIGSYS", "update", False),
        (end(-signal.SIGKILL), "SIGKILL, as the system does when the memory", "close", True),
        (end(-signal.SIGTERM), "killed by SIGTERM", "update", True),
        (end(-64), "killed by (SIGRTMAX|signal 64)", "update", True),
        (end(-signal.SIGKILL, timed_out=True), "did not end within 3 s", "busy", False),
        (end(None, timed_out=True), "does not end, since it waits in the kernel", "restart", False),
    ],
)
def test_cause_and_remedy(how: SelfTestEnd, cause: str, remedy: str, again: bool) -> None:
    found = diagnose(how, "qnn (form table)")
    assert found is not None
    assert re.search(cause, found.cause), found.cause
    assert re.search(remedy, found.remedy), found.remedy
    assert found.again is again


DSP = "QnnDsp <E> "
RPC = "E/adsprpc(4711): vendor/qcom/proprietary/adsprpc/src/fastrpc_apps_user.c:"
"""How QNN's and FastRPC's lines begin, on others' phones; what follows is theirs, too."""

SHELL = RPC + (
    "3592: Error 0xd: open_shell failed for domain 3 search paths used are /dsp/, /vendor/dsp/ "
    "(errno Permission denied)"
)
SKEL = DSP + "Failed to load skel, error: 4000\n" + DSP + "Transport layer setup failed: 14001"


@pytest.mark.parametrize(
    ("log", "cause", "remedy"),
    [
        (
            DSP + "Stub lib id mismatch: expected (v2.36.0.250627101419_123260), detected "
            "(v2.34.0.250424201103_119471)\n" + SKEL,
            r"Stub library is of version v2\.34\.0\.250424201103, and libQnnHtp\.so of v2\.36\.0",
            "from one release",
        ),
        (
            DSP + "Skel lib id mismatch: expected (v2.46.0.260424121129), detected "
            "(v2.47.0.260601114230)\n" + DSP + "Failed to load skel, error: 1008",
            r"Skel library is of version v2\.47\.0",
            "from one release",
        ),
        (
            "The requested API version [30] is not available, only API versions [1, 29] are "
            "supported in this build. Current ORT Version is: 1.29.0",
            "newer onnxruntime than this one: it asks for API 30, found 29",
            "pkg upgrade",
        ),
        (
            "[E:onnxruntime:, GetCapability] QNN SetupBackend failed Unable to find a valid "
            "interface for /qnn/libQnnHtp.so",
            "/qnn/libQnnHtp.so is older than the QNN provider needs",
            "qnn-runtime",
        ),
        ("Unrecognized soc_model '639'", "does not know this phone's SoC", "LORAD_SOC"),
        (
            "FP16 precision mode is enabled but soc_model is not specified.",
            "does not know this phone's SoC",
            "LORAD_SOC",
        ),
        (
            RPC + "1: apps_std_fopen_fd failed for libQnnHtpV81Skel.so (No such file or directory)"
            "\n" + SHELL + "\n" + SKEL,
            r"does not find libQnnHtpV81Skel\.so",
            "0644",
        ),
        (SHELL + "\n" + SKEL, "may not start the DSP's shell", "maker decides"),
        (
            'avc: denied { read } for name="fastrpc_shell_unsigned_3" dev="sde9"\n'
            + RPC
            + "4770: Error 0xffffffff: open_dev (-1) failed for domain 3 (errno Permission denied)",
            "may not start the DSP's shell",
            "maker decides",
        ),
        (
            RPC
            + "4247: Error 0x80000416: apps_dev_init failed for domain 3, errno Success\n"
            + SKEL,
            "refuses apps the NPU's device",
            "maker decides",
        ),
        (
            RPC + "3201: apps_dev_init failed for domain 3, errno File exists, ioErr -1",
            "has opened the DSP before",
            "CPU",
        ),
        (SKEL, r"its half of QNN, the skel \(4000\)", "0644"),
        (DSP + "Transport layer setup failed: 14001", r"the skel \(14001\)", "0644"),
        (DSP + "DspTransport.openSession qnn_open failed, 0x80000406", "0x80000406", "0644"),
        (
            "QNN SetupBackend failed Failed to create device. Error: "
            "QNN_DEVICE_ERROR_INVALID_CONFIG: Invalid config values",
            r"the skel \(QNN_DEVICE_ERROR_INVALID_CONFIG\)",
            "0644",
        ),
        (
            DSP + "Failed to load library libQnnHtpV79Stub.so: dlopen failed: library "
            '"libcdsprpc.so" not found: needed by libQnnHtpV79Stub.so',
            "libcdsprpc.so, through which",
            "phone's own system",
        ),
        (
            'dlopen failed: library "/vendor/lib64/libcdsprpc.so" needed or dlopened by '
            '"/qnn/libQnnHtpV79Stub.so" is not accessible for the namespace "(default)"',
            "does not show /vendor/lib64/libcdsprpc.so to apps",
            "library path",
        ),
        (
            'dlopen failed: couldn\'t map "/vendor/lib64/libQnnHtpPrepare.so" segment 2: '
            "Permission denied",
            "does not let apps load /vendor/lib64/libQnnHtpPrepare.so",
            "fetch-qnn",
        ),
    ],
)
def test_what_the_libraries_said_is_nearer_to_the_cause(log: str, cause: str, remedy: str) -> None:
    """The same wherever it stands, whatever came of it, and among the noise of phones that work."""
    noise = (
        "open_device_node: no access to default device of domain 3, open thru HAL, (sess_id 0)\n"
        'avc: denied { read } for name="adsprpc-smd-secure" dev="tmpfs" ino=1385\n'
    )
    fell = "onnxruntime could not open a graph: nodes that are assigned to the default CPU EP"
    report = {"passed": False, "cause": fell, "cases": []}
    ends = [
        end(report=report, log=noise + log),
        end(report=report, stderr=f"{log}\nthe last line\n"),
        end(-signal.SIGSEGV, log=log + "\n" + noise),
        end(3, stderr=f"{noise}{log}\n"),
    ]
    found = {diagnose(one, "qnn (form inputs)") for one in ends}
    assert len(found) == 1
    (one,) = found
    assert one is not None
    assert re.search(cause, one.cause), one.cause
    assert re.search(remedy, one.remedy), one.remedy
    assert one.cause.splitlines() == [one.cause]


def test_no_line_of_a_working_phone_is_a_cause() -> None:
    """A denied shell is one only where nobody else could open it."""
    report = {"passed": False, "cause": "onnxruntime could not open a graph: why", "cases": []}
    opened = RPC + "3733: Successfully opened /vendor/dsp/cdsp/fastrpc_shell_unsigned_3, domain 3"
    found = diagnose(end(report=report, log=f"{SHELL}\n{opened}\n"), "qnn")
    assert found is not None
    assert found.cause == "onnxruntime could not open a graph: why"


def test_wrong_numbers_stay_wrong_numbers_whatever_the_log_says() -> None:
    case = {"format": "int8", "direction": "forward", "passed": False}
    report = {"passed": False, "cause": None, "cases": [case]}
    found = diagnose(end(report=report, log=SKEL, stderr=SKEL), "qnn")
    assert found is not None
    assert found.cause == "qnn computes wrong numbers: the self-test failed for int8 forward"


def test_each_known_line_has_a_sentence_of_its_own() -> None:
    causes = [known.cause for known in DSP_CAUSES]
    assert len(set(causes)) == len(causes)


@pytest.mark.parametrize("code", [0, 1, -signal.SIGABRT])
def test_a_library_that_crashes_when_it_is_unloaded_has_passed(code: int) -> None:
    report = {"passed": True, "cause": None, "cases": []}
    assert diagnose(end(code, report=report), "qnn") is None


@given(
    code=st.none() | st.integers(-64, 255),
    report=st.none()
    | st.fixed_dictionaries(
        {"passed": st.just(False)}, optional={"cause": st.text(), "cases": st.lists(st.integers())}
    ),
    stderr=st.text(),
    log=st.text() | st.sampled_from([SHELL, SKEL, "unknown SoC \t model x" + "y" * 500]),
    timed_out=st.booleans(),
)
def test_every_failure_has_one_line_each(
    code: int | None, report: Any, stderr: str, log: str, timed_out: bool
) -> None:
    how = end(code, report=report, stderr=stderr, log=log, timed_out=timed_out)
    found = diagnose(how, "qnn")
    assert found is not None
    for sentence in (found.cause, found.remedy):
        assert sentence
        assert sentence.splitlines() == [sentence]
        assert len(sentence) < 500
