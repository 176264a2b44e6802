"""The way to the user's libraries with which the NPU computes right, found by trying each.

    each way of library_path.py ──▶ the self-test in a child started with it ──▶ the first that
    passes is kept with the verdict; every child that computes is started with it from then on

The simplest form of graph is tried, and another form then only with the way that was found: what
keeps the libraries from the NPU does so whatever the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from npu.engine_choice import EngineName
from npu.library_path import LibraryPath, library_paths
from npu.qnn_libraries import QnnLibraries
from npu.verdict import Check, Trial, Verdict

_SIMPLEST = "inputs"

Examine = Callable[[EngineName, str, LibraryPath | None], Check]
"""Tests an engine and form in a child that is started with that way."""


@dataclass
class LibrarySearch:
    """Tests engines; those on the NPU with the user's libraries on the way that works."""

    libraries: QnnLibraries | None
    """None: there are none, and nothing is to be found."""
    examine_with: Examine
    path: LibraryPath | None = None
    """The way that works, if it is known."""
    trials: tuple[Trial, ...] = ()
    """What was tried to find it."""
    simplest: Check | None = None
    """The check that the search itself made, if there was one."""

    @classmethod
    def begin(
        cls, libraries: QnnLibraries | None, examine_with: Examine, known: Verdict | None
    ) -> LibrarySearch:
        """Begin with what a verdict of this device has kept, if that is still a way to them."""
        search = cls(libraries, examine_with)
        if known is not None and libraries is not None:
            search.trials = known.trials
            if known.library_path in library_paths(libraries.folder):
                search.path = known.library_path
        return search

    @property
    def needed(self) -> bool:
        """Whether the NPU can't be used before a way is found."""
        return self.libraries is not None and self.path is None

    @property
    def checks(self) -> list[Check]:
        """What the search itself has found out."""
        return [] if self.simplest is None else [self.simplest]

    def examine(self, engine: EngineName, form: str) -> Check:
        """Test one engine and form, after a search where that is needed. Raises Interrupted."""
        if engine != "qnn" or self.libraries is None:
            return self.examine_with(engine, form, None)
        if self.simplest is not None and form == _SIMPLEST:
            return self.simplest
        if self.path is None and self.simplest is None:
            self.simplest = self._search(self.libraries)
            if form == _SIMPLEST:
                return self.simplest
        if self.path is None:
            assert self.simplest is not None
            return replace(self.simplest, form=form, seconds=0.0)
        return self.examine_with(engine, form, self.path)

    def _search(self, libraries: QnnLibraries) -> Check:
        trials: list[Trial] = []
        checks: list[Check] = []
        for path in library_paths(libraries.folder):
            check = self.examine_with("qnn", _SIMPLEST, path)
            checks.append(check)
            trials.append(Trial(path, check.passed, check.cause, check.remedy, check.seconds))
            if check.passed:
                self.path = path
                break
        self.trials = tuple(trials)
        return checks[-1] if checks[-1].passed else _most_telling(checks)


def _most_telling(checks: list[Check]) -> Check:
    """Of failures with every way that of the one that came farthest, else the first.

    Where a library couldn't be loaded, nothing is known of what the DSP would have said.
    """
    loaded = [check for check in checks if check.loaded]
    told = (loaded or checks)[0]
    return replace(told, again=any(check.again for check in checks))
