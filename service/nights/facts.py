"""What decides each adapter's turn, read from the database and the base models' folder."""

from typing import Any

from sqlalchemy import Row
from sqlmodel import Session

from api_schemas.nights import NightOptions
from service.models import ModelFolder
from service.nights.moment import Moment
from service.nights.selection import Facts, UnfinishedRun
from service.runs.base_model import base_model_problem
from storage import turns
from storage.tables import UNFINISHED


def read_facts(
    session: Session, models: ModelFolder, moment: Moment, *, unfinished_only: bool = False
) -> list[Facts]:
    """The facts of every adapter, or of those with an unfinished run, by their ids."""
    problems: dict[tuple[str, str], str | None] = {}
    found = []
    for row in turns.everyone(session, moment.night_id):
        unfinished = row.status in UNFINISHED
        if unfinished or not unfinished_only:
            base = (row.base_model, row.base_hash)
            if base not in problems:
                problems[base] = base_model_problem(models, *base)
            found.append(_facts(session, row, unfinished, problems[base]))
    return found


def _facts(session: Session, row: Row[Any], unfinished: bool, problem: str | None) -> Facts:
    night = NightOptions.model_validate(row.night)
    new = _new(session, row, night, unfinished)
    return Facts(
        adapter_id=row.id,
        night=night,
        run=UnfinishedRun(
            row.run_id, row.status, row.origin, row.in_window, row.override, row.not_before
        )
        if unfinished
        else None,
        train=row.pending + row.used,
        new=new.count,
        oldest_new=new.oldest,
        last_trained=row.last_trained,
        seconds_tonight=row.seconds_tonight,
        problem=problem,
    )


def _new(session: Session, row: Row[Any], night: NightOptions, unfinished: bool) -> turns.New:
    ended_without = row.status in ("failed", "cancelled")
    enough = row.pending >= night.min_new and not ended_without
    if unfinished or enough or row.pending == 0 or not night.train:
        return turns.New(row.pending, None)
    since = row.run_made if ended_without else 0
    return turns.new_examples(session, row.id, row.pending, since)
