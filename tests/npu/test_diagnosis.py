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
    timed_out=st.booleans(),
)
def test_every_failure_has_one_line_each(
    code: int | None, report: Any, stderr: str, timed_out: bool
) -> None:
    found = diagnose(end(code, report=report, stderr=stderr, timed_out=timed_out), "qnn")
    assert found is not None
    for sentence in (found.cause, found.remedy):
        assert sentence
        assert sentence.splitlines() == [sentence]
        assert len(sentence) < 500
