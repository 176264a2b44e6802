"""The examples of one run while it is under way: those it has, and those it has forgotten."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from storage import examples
from storage.adapters import data_key
from storage.database import Database, DatabaseFileError
from storage.migrations import SchemaVersionError
from trainer.dataset import load_dataset
from trainer.earlier_checkpoints import corrected_since
from trainer.prefix_files import PrefixFiles
from trainer.run_state import RunState
from trainer.spec import RunSpec
from trainer.tokens import ChatTokenizer


class UnreadableError(RuntimeError):
    """Which examples are still there can't be read from the database now."""


class RunExamples:
    """What a run trains and is measured on; the database is opened only to look, and closed."""

    def __init__(self, home: Path, spec: RunSpec, tokenizer: ChatTokenizer) -> None:
        """Load those of the spec's examples that are there.

        Raises:
            trainer.dataset.DatasetError: if they can't be read or encoded.
            storage.database.DatabaseFileError: if there is no database.
        """
        self._path, self._spec = home / "lorad.db", spec
        with Database.open_readonly(self._path) as database:
            self.data = load_dataset(database, spec, tokenizer)
        self.forgotten: dict[int, int] = {}
        """After how many steps an example was forgotten, by id."""
        self._kept: PrefixFiles | None = None

    def keep_rows(self, root: Path, name: str, limit_bytes: int) -> PrefixFiles:
        """The kept rows of these examples, in `root / name`; what is forgotten leaves them."""
        with Database.open_readonly(self._path) as database, database.read() as session:
            key = data_key(session, self._spec.adapter_id)
        self._kept = PrefixFiles(
            root,
            name,
            limit_bytes=limit_bytes,
            key=key,
            changed_at=self.data.changed_at,
            unchanged=self._unchanged,
        )
        return self._kept

    def forget(self, ids: Iterable[int], step: int) -> None:
        """Drop examples after `step` steps, and again those forgotten earlier.

        These keep their step. An expired one may have been sent anew, under its old id: once
        forgotten, a run doesn't know it again.
        """
        for example_id in ids:
            self.forgotten.setdefault(example_id, step)
        self.data.forget(self.forgotten)
        if self._kept is not None:
            self._kept.forget(self.forgotten)

    def missing(self) -> list[int]:
        """Ids of the spec that aren't at hand."""
        wanted = (*self._spec.train_example_ids, *self._spec.holdout_example_ids)
        there = set(self.data.ids())
        return [one for one in wanted if one not in there]

    def gone(self) -> list[int]:
        """Which of those at hand aren't there any more with this text, as the database says now.

        They have been deleted or corrected, or have expired, perhaps to be sent anew.

        Raises:
            UnreadableError: if it doesn't say.
        """
        return self._changed(list(self.data.changed_at))

    def _unchanged(self, ids: Collection[int]) -> Collection[int]:
        """Those of the examples at hand that the database has with this text; none if unsure."""
        try:
            return set(ids).difference(self._changed(ids))
        except UnreadableError:
            return ()

    def _changed(self, ids: Collection[int]) -> list[int]:
        try:
            with Database.open_readonly(self._path) as database, database.read() as session:
                now = examples.last_changed(session, list(ids))
        except (DatabaseFileError, SchemaVersionError, SQLAlchemyError) as error:
            raise UnreadableError(
                f"expected to read which examples are still there, found {type(error).__name__}"
            ) from None
        return [one for one in ids if now.get(one) != self.data.changed_at[one]]

    def correction_since(self, state: RunState) -> str | None:
        """A sentence about the first example whose text isn't the one that state knew, or None."""
        now = self.data.changed_at
        corrected = [i for i, then in state.changed_at.items() if now.get(i, then) != then]
        if state.digests is not None:
            with Database.open_readonly(self._path) as database:
                corrected = corrected_since(database, self._spec.adapter_id, state.digests)
        if corrected := [i for i in corrected if i in now]:
            return f"example {corrected[0]} was changed while the run was under way"
        return None
