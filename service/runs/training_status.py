"""Whose turn it is, in words: why an adapter is being trained, or why it isn't."""

from sqlmodel import Session

from api_schemas.nights import HeldBy, Why
from service.nights import words
from service.nights.outlook import Outlook
from service.nights.selection import Standing
from service.views import instant
from storage import runs, versions
from storage.examples import Counts
from storage.tables import Adapter, Run


def why(session: Session, adapter: Adapter, counts: Counts, outlook: Outlook) -> Why:
    """The rule that applies to the adapter, and what it waits for."""
    standing = outlook.standings[adapter.id]
    moment = outlook.moment
    held_by: HeldBy | None = None
    rule = standing.rule
    if rule == "training":
        says = _training(standing, outlook)
        if outlook.chosen is not None and outlook.chosen.adapter_id == adapter.id:
            rule = outlook.chosen.rule
    elif standing.place is not None:
        held_by, obstacle = _obstacle(standing, outlook)
        says = _due(session, adapter, standing, obstacle)
    else:
        says = _not_due(session, adapter, counts, standing, outlook)
    following = moment.upcoming
    return Why(
        rule=rule,
        held_by=held_by,
        says=says,
        place=standing.place,
        window_open=moment.opening is not None,
        next_window=None if following is None else instant(following.begins),
        minutes_used=round(standing.facts.seconds_tonight / 60, 1),
        minutes=standing.facts.night.minutes,
    )


def _training(standing: Standing, outlook: Outlook) -> str:
    run = standing.facts.run
    assert run is not None  # it is what is being trained
    chosen = outlook.chosen
    if chosen is None or chosen.adapter_id != standing.facts.adapter_id:
        return f"run {run.id} is being trained"
    return f"run {run.id} is being trained: {chosen.words}"


def _obstacle(standing: Standing, outlook: Outlook) -> tuple[HeldBy | None, str]:
    """What keeps an adapter that is due from being trained now."""
    moment, run = outlook.moment, standing.facts.run
    if moment.paused:
        return "pause", moment.pause()
    if standing.in_window and moment.opening is None:
        return "window", words.no_window(moment)
    if outlook.in_training:  # perhaps another client's: it has no name here
        return "turn", "it waits for another training to end; one trains at a time"
    refusal = outlook.refusal(run is not None and run.override)
    if refusal is not None:
        return "gates", refusal
    if outlook.waiting_because is not None:
        return "worker", outlook.waiting_because
    if standing.place != 1:
        return "turn", f"it is number {standing.place} in the line"
    return None, "it is about to start"


def _due(session: Session, adapter: Adapter, standing: Standing, obstacle: str) -> str:
    if standing.facts.run is None:
        return f"it is due: {words.why_due(standing)}. {_sentence(obstacle)}; {_trigger(adapter)}"
    run = runs.by_id(session, standing.facts.run.id)
    if run is not None and run.status == "interrupted":
        now = "" if run.error is not None and obstacle in run.error else f". Now: {obstacle}"
        return f"run {run.id} was interrupted: {run.error}{now}"
    return f"run {standing.facts.run.id} was asked for: {obstacle}"


def _not_due(
    session: Session, adapter: Adapter, counts: Counts, standing: Standing, outlook: Outlook
) -> str:
    facts, moment = standing.facts, outlook.moment
    run = None if facts.run is None else runs.by_id(session, facts.run.id)
    match standing.rule:
        case "paused" if run is not None:
            return f"run {run.id} is {run.error}; POST /v1/runs/{run.id}/resume goes on with it"
        case "backing-off" if run is not None:
            return f"run {run.id} was interrupted: {run.error}"  # and that says when it goes on
        case "base-model":
            return str(facts.problem)
        case "nights-off":
            return (
                f"its nights are turned off (night.train), and {words.examples(counts.pending)} "
                f"wait; {_trigger(adapter)}"
            )
        case "budget-used":
            return (
                f"its budget of {facts.night.minutes} minutes for tonight is used up; "
                f"{moment.resumption()}"
            )
        case "no-examples":
            return "it has no training examples yet"
    before = _before(session, adapter, counts)
    return f"{before}{words.when_due(facts, moment)}; {_trigger(adapter)}"


def _before(session: Session, adapter: Adapter, counts: Counts) -> str:
    """What became of the last run, where that is why there is nothing new."""
    last = runs.latest(session, adapter.id)
    if last is None:
        return ""
    if last.status in ("failed", "cancelled"):
        return f"run {last.id} {_ended(last)}. Unasked it is not repeated with the same examples: "
    if counts.pending > 0:
        return ""
    version = versions.of_run(session, last.id)
    seen = "a version" if version is None else f"version {version.number}"
    return f"{seen} was trained on all {counts.train} training examples; "


def _ended(run: Run) -> str:
    return f"failed: {run.error}" if run.status == "failed" else f"was {run.error}"


def _trigger(adapter: Adapter) -> str:
    return f"POST /v1/adapters/{adapter.name}/runs starts a training now"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
