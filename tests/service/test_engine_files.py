"""HOME/engine/ as the daemon reads and writes it: what can't be read says nothing, once."""

import json
import logging
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine_files import MOST_BYTES, MOST_ENTRIES, MOST_TEXT, Demotion, EngineFiles

MARK = {"engine": "qnn", "form": "table", "phase": "training", "run": 7, "pid": 123}
MARK |= {"fingerprint": "sha256:a", "unexplained": 0}
CHECK = {"name": "tiny rows", "engine": "qnn", "form": "table", "passed": False, "seconds": 1.5}
CHECK |= {"cause": "rel 2.2", "remedy": "LORAD_FORM=inputs", "device": "HTP", "soc": "SM8650"}
VERDICT = {"fingerprint": "sha256:a", "at": "2026-11-30T04:00:00Z", "checks": [CHECK]}
VERDICT |= {"engine": "torch_cpu", "form": "codes", "why": "qnn failed"}


def demotion(number: int = 0, **changes: Any) -> Demotion:
    fields = {"engine": "qnn", "fingerprint": f"sha256:{number}", "cause": "SIGSEGV at step 12"}
    return Demotion.model_validate(fields | changes)


@pytest.fixture
def files(tmp_path: Path) -> EngineFiles:
    return EngineFiles(tmp_path / "engine")


def put(tmp_path: Path, name: str, content: bytes | dict[str, Any]) -> None:
    folder = tmp_path / "engine"
    folder.mkdir(exist_ok=True)
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    (folder / name).write_bytes(data)


def test_without_a_folder_nothing_is_known(files: EngineFiles) -> None:
    assert (files.mark(), files.demotions(), files.verdict()) == (None, [], None)
    assert files.mark_stamp() is None


def test_what_the_other_side_writes_is_read(files: EngineFiles, tmp_path: Path) -> None:
    put(tmp_path, "in-use.json", MARK)
    mark = files.mark()
    assert mark is not None
    assert mark.model_dump() == {k: v for k, v in MARK.items() if k != "unexplained"}
    put(tmp_path, "doctor.json", VERDICT)
    verdict = files.verdict()
    assert verdict is not None
    assert (verdict.engine, verdict.checks[0].remedy) == ("torch_cpu", "LORAD_FORM=inputs")
    assert not verdict.checks[0].passed


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff",
        b"[]",
        b"null",
        b"7",
        b'{"demotions": 7, "engine": 7}',
        b'{"engine": "qnn"}',
        b'{"run": NaN}',
        b"[" * 5000,
        b" " * (MOST_BYTES + 1),
    ],
)
def test_an_unreadable_file_says_nothing_and_the_log_says_so_once(
    files: EngineFiles, tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("in-use.json", "demotions.json", "doctor.json"):
        put(tmp_path, name, content)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert (files.mark(), files.demotions(), files.verdict()) == (None, [], None)
    complaints = [record for record in caplog.records if "says nothing" in record.message]
    if content != b"null":  # which is no value at all
        assert len(complaints) == 3
    assert files.demote(demotion()), "what can't be read is in nobody's way"
    assert files.demotions() == [demotion()]


def test_entries_that_cannot_be_read_leave_the_others(files: EngineFiles, tmp_path: Path) -> None:
    good = {"engine": "qnn", "fingerprint": "sha256:b", "cause": "unfit"}
    odd = {"engine": "qnn", "cause": 7, "later": "field"}
    put(tmp_path, "demotions.json", {"demotions": [odd, good, None]})
    assert [one.fingerprint for one in files.demotions()] == ["sha256:b"]
    put(tmp_path, "doctor.json", VERDICT | {"checks": [CHECK, {"name": "x"}, CHECK]})
    verdict = files.verdict()
    assert verdict is not None
    assert len(verdict.checks) == 2
    assert files.demote(demotion())
    kept = json.loads((tmp_path / "engine/demotions.json").read_text())["demotions"]
    assert kept[:3] == [odd, good, None], "what another release wrote is kept"


def test_texts_are_cut_and_lists_bounded(files: EngineFiles, tmp_path: Path) -> None:
    put(tmp_path, "in-use.json", MARK | {"fingerprint": "x" * 5000})
    mark = files.mark()
    assert mark is not None
    assert len(mark.fingerprint) == MOST_TEXT
    many = [demotion(number).model_dump() for number in range(MOST_ENTRIES + 5)]
    put(tmp_path, "demotions.json", {"demotions": many})
    assert files.demote(demotion(999))
    kept = json.loads((tmp_path / "engine/demotions.json").read_text())["demotions"]
    assert len(kept) == MOST_ENTRIES
    assert files.demotions()[-1] == demotion(999)


def test_an_engine_is_demoted_once_on_a_device(files: EngineFiles, tmp_path: Path) -> None:
    assert files.demote(demotion(cause="the first"))
    assert not files.demote(demotion(cause="the second"))
    assert files.demote(demotion(engine="another"))
    assert [one.cause for one in files.demotions()] == ["the first", "SIGSEGV at step 12"]
    for path in (tmp_path / "engine", tmp_path / "engine/demotions.json"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0
    assert [path.name for path in (tmp_path / "engine").iterdir()] == ["demotions.json"]


def test_a_demotion_that_cannot_be_written_leaves_what_was_there(
    files: EngineFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert files.demote(demotion(1))

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            files.demote(demotion(2))
    assert files.demotions() == [demotion(1)]


def test_the_mark_is_removed_and_a_new_one_has_another_stamp(
    files: EngineFiles, tmp_path: Path
) -> None:
    put(tmp_path, "in-use.json", MARK)
    first = files.mark_stamp()
    assert first is not None
    files.remove_mark()
    files.remove_mark()
    assert (files.mark(), files.mark_stamp()) == (None, None)
    put(tmp_path, "in-use.json", MARK)
    assert files.mark_stamp() != first


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from([*MARK, *VERDICT, "demotions", "cause"]), inner, max_size=6
            )
        ),
    )
)
def test_no_json_at_all_raises(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    folder = tmp_path_factory.getbasetemp() / "any-json"
    folder.mkdir(exist_ok=True)
    for name in ("in-use.json", "demotions.json", "doctor.json"):
        (folder / name).write_text(json.dumps(value))
    files = EngineFiles(folder)
    files.mark()
    files.demotions()
    files.verdict()
