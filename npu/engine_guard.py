"""What stands between a worker and an engine that could take its process down.

    asked for qnn ──▶ given up on this device? ──▶ tested here before? ──▶ no: test it in a child
                            │ yes                        │ failed              │ failed
                            ▼                            ▼                     ▼
                         torch_cpu                   torch_cpu        torch_cpu, and given up
                                                         passed ──▶ mark on the disk ──▶ open it

All of it happens before torch is loaded, since one process at a time may hold that, the child too.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from npu.demotions import Demotion, add_demotion, find_demotion
from npu.doctor import NPU_FORMS, SECONDS, examine, given_up
from npu.engine_choice import EngineName, RequestedEngine, choose_engine
from npu.engine_mark import EngineMark, Phase, read_mark, remove_mark, write_mark
from npu.engine_options import EngineOptions, RequestedForm
from npu.errors import EngineError
from npu.fingerprint import fingerprint
from npu.library_path import LibraryPath
from npu.library_search import LibrarySearch
from npu.qnn_libraries import user_libraries
from npu.verdict import Check, Verdict, judge, merged, read_verdict, write_verdict

DEATHS_TO_GIVE_UP = 3
"""One is Android's way, two may be chance; what kills at each opening would do so for ever."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Choice:
    """The engine to open, and why."""

    engine: EngineName
    form: RequestedForm
    why: str
    refused: str | None = None
    """Why `qnn`, which was meant, isn't opened."""
    form_why: str | None = None
    """Why it isn't the preferred form."""


class AnotherLibraryPath(Exception):  # noqa: N818 - not an error: the next process has it
    """This process can't load the NPU's libraries: it was started without the path to them.

    The path was found, and is kept: the daemon starts the next process with it.
    """

    def __init__(self) -> None:
        """The same for all."""
        super().__init__(
            "the way to the NPU's libraries was found, and the next process is started with it"
        )


class EngineGuard:
    """Guards the one engine that one worker opens."""

    def __init__(
        self,
        folder: Path,
        run_id: int,
        *,
        seconds: float = SECONDS,
        stop: Callable[[], bool] = lambda: False,
        testing: Callable[[], None] = lambda: None,
    ) -> None:
        """Guard with what the home's engine `folder` knows.

        Args:
            folder: HOME/engine; it need not be there.
            run_id: whose worker this is.
            seconds: the time limit of a self-test.
            stop: whether a self-test should be ended early.
            testing: called before a self-test is started.
        """
        self.folder = folder
        self._run_id, self._seconds, self._stop, self._testing = run_id, seconds, stop, testing
        self._choice: Choice | None = None
        self._mark: EngineMark | None = None
        self._fingerprint = ""
        self._unexplained = 0

    def choose(self, requested: RequestedEngine, options: EngineOptions) -> Choice:
        """What to open; the same answer to every call.

        Raises npu.doctor.Interrupted if `stop` ended a self-test, and AnotherLibraryPath if the
        engine to open needs one.
        """
        if self._choice is None:
            meant, why = choose_engine(requested)
            if meant == "qnn":
                self._choice = self._choose_qnn(why, options)
            else:
                self._choice = Choice(meant, options.form, why)
            if self._choice.engine != "qnn":
                self.close()
        return self._choice

    def opening(self, form: str) -> None:
        """Leave the mark: from here on native code of the NPU runs in this process.

        Raises EngineError if it can't be written, for then the engine must not be opened.
        """
        self._mark = EngineMark(
            engine="qnn",
            form=form,
            phase="opening",
            run=self._run_id,
            pid=os.getpid(),
            fingerprint=self._fingerprint,
            unexplained=self._unexplained,
        )
        try:
            write_mark(self.folder, self._mark)
        except OSError as error:
            self._mark = None
            raise EngineError(
                f"the mark of an engine in use can't be written: {error.strerror or error}"
            ) from error

    def opened(self, form: str) -> None:
        """The engine passed its self-test and is about to compute for the model."""
        self._move_on("first product", form)

    def first_product_done(self) -> None:
        """The model's own products run; may be called again and again."""
        self._move_on("training")

    def close(self) -> None:
        """Take the mark away, this process's or one that was left; its end is an orderly one."""
        self._mark = None
        try:
            remove_mark(self.folder)
        except OSError as error:
            _log.warning("the mark of an engine in use can't be removed: %s", error.strerror)

    def _move_on(self, phase: Phase, form: str | None = None) -> None:
        if self._mark is None or self._mark.phase == phase:
            return
        self._mark = replace(self._mark, phase=phase, form=form or self._mark.form)
        try:
            write_mark(self.folder, self._mark)
        except OSError as error:  # the mark says too early a phase, no more
            _log.warning("the mark of an engine in use can't be renewed: %s", error.strerror)

    def _choose_qnn(self, why: str, options: EngineOptions) -> Choice:
        self._fingerprint = fingerprint(None if options.soc is None else options.soc.part)
        self._count_deaths()
        demotion = find_demotion(self.folder, "qnn", self._fingerprint)
        if demotion is not None:
            return _refusal(given_up("qnn", demotion.cause), options)
        forms = NPU_FORMS if options.form == "auto" else (options.form,)
        checks, path = self._check(forms, why, options)
        if path is not None and not path.is_that_of(os.environ) and checks[-1].passed:
            self.close()
            known = read_verdict(self.folder, self._fingerprint)
            if known is None or known.library_path != path:
                return _refusal("the way to the NPU's libraries can't be kept on the disk", options)
            raise AnotherLibraryPath
        fit = [form for form, check in zip(forms, checks, strict=False) if check.passed]
        if not fit:
            return _refusal(f"qnn can't be used: {checks[0].cause}", options)
        if checks[0].passed:
            return Choice("qnn", options.form, why)
        form_why = f"the form {checks[0].form} can't be used: {checks[0].cause}"
        return Choice("qnn", fit[0], why, form_why=form_why)

    def _check(
        self, forms: tuple[str, ...], why: str, options: EngineOptions
    ) -> tuple[list[Check], LibraryPath | None]:
        """The checks of the forms up to the first that passes, from the verdict where it has them.

        Also the way to the user's libraries that they were made with. What was tested only now is
        kept; an engine of which no form passes is given up.
        """
        known = read_verdict(self.folder, self._fingerprint)
        soc = None if options.soc is None else options.soc.part
        search = LibrarySearch.begin(
            user_libraries(),
            lambda engine, form, path: examine(
                engine, form, seconds=self._seconds, soc=soc, path=path, stop=self._stop
            ),
            known,
        )
        checks: list[Check] = []
        fresh: list[Check] = []
        for form in forms:
            check = None if known is None else known.check("qnn", form)
            if check is None or (check.passed and search.needed):
                self._testing()
                check = search.examine("qnn", form)
                fresh.append(check)
            checks.append(check)
            if check.passed:
                break
        if fresh:
            made = [*checks, *(other for other in search.checks if other not in checks)]
            self._keep(known, why, made, search)
        if not any(check.passed for check in checks) and all(c.settled for c in fresh) and fresh:
            self._give_up(checks[0].cause or "it failed its self-test")
        return checks, search.path

    def _keep(
        self, known: Verdict | None, why: str, checks: Sequence[Check], search: LibrarySearch
    ) -> None:
        verdict = judge(
            self._fingerprint,
            "qnn",
            why,
            merged(known, checks),
            library_path=search.path,
            trials=search.trials,
        )
        try:
            write_verdict(self.folder, verdict)
        except OSError as error:  # tested again next time
            _log.warning("the self-test's verdict can't be kept: %s", error.strerror)

    def _count_deaths(self) -> None:
        """Count the death that a mark was left by, and give the engine up after three in a row.

        Nobody saw the cause of it, or the daemon had taken the mark away. While the engine trains,
        a death is Android's; at each opening, or at each first product, it is hardly chance.
        """
        mark = read_mark(self.folder)
        if mark is None or mark.fingerprint != self._fingerprint or mark.phase == "training":
            return
        self._unexplained = mark.unexplained + 1
        if self._unexplained >= DEATHS_TO_GIVE_UP:
            where = "while it was opened" if mark.phase == "opening" else "at its first product"
            self._give_up(
                f"the worker was killed {self._unexplained} times in a row {where}, and nobody "
                "saw by what",
                mark.phase,
            )

    def _give_up(self, cause: str, phase: Phase = "opening") -> None:
        demotion = Demotion("qnn", self._fingerprint, cause, phase, self._run_id)
        try:
            add_demotion(self.folder, demotion)
        except OSError as error:  # it fails once more, next time
            _log.warning("that qnn was given up can't be kept: %s", error.strerror)


def _refusal(why: str, options: EngineOptions) -> Choice:
    return Choice("torch_cpu", options.form, why, refused=why)
