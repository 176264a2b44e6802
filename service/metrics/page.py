"""GET /metrics: everything that is seen of the daemon from outside, and no text of anybody's.

Adapters go by their ids, not by the names that their apps gave them.
"""

from typing import Any, get_args

from service import device
from service.boot_clock import boot_seconds
from service.context import Context
from service.engine_answer import engine_answer
from service.engine_files import EngineFiles
from service.gates.verdict import GateVerdict
from service.metrics.exposition import Exposition
from service.metrics.process import write_process
from service.nights.moment import Moment
from service.sensors.readings import Reading, Readings
from storage import runs
from storage.tables import Run, RunStatus, Verdict
from storage.totals import Totals, totals


def metrics_page(context: Context, version: str) -> str:
    """The page, in the text format of Prometheus."""
    page = Exposition()
    page.one("lorad_info", "gauge", "The daemon's version.", 1, version=version)
    with context.database.read() as session:
        found = totals(session)
        moment = context.conductor.moment(session)
        latest = runs.latest_with_engine(session, None)
    _write_examples(page, found)
    _write_runs(page, found)
    context.feed.work.write(page)
    _write_gates(page, context.conductor.verdicts())
    _write_readings(page, context.sensors.read_unless_busy())
    _write_windows(page, moment)
    _write_engine(page, context, latest)
    _write_room(page, context)
    write_process(page)
    context.requests.write(page)
    return page.text()


def _write_examples(page: Exposition, found: Totals) -> None:
    name = "lorad_examples"
    page.family(name, "gauge", "Examples by the adapter's id; pending: no version has seen it.")
    for count in found.examples:
        page.sample(
            name, count.examples, adapter=count.adapter_id, split=count.split, status=count.status
        )
    page.family("lorad_examples_bytes", "gauge", "Bytes of their text.")
    for count in found.examples:
        page.sample(
            "lorad_examples_bytes",
            count.bytes,
            adapter=count.adapter_id,
            split=count.split,
            status=count.status,
        )


def _write_runs(page: Exposition, found: Totals) -> None:
    page.family("lorad_runs", "gauge", "Runs by state.")
    for status in get_args(RunStatus):
        page.sample("lorad_runs", found.runs.get(status, 0), status=status)
    page.family("lorad_versions", "gauge", "Versions by what the holdout said of them.")
    for verdict in get_args(Verdict):
        page.sample("lorad_versions", found.verdicts.get(verdict, 0), verdict=verdict)
    run = found.running
    if run is None:
        return
    told: tuple[tuple[str, str, float | None], ...] = (
        ("lorad_run_step", "The step of the run that is being trained.", run.step),
        ("lorad_run_steps", "How many it will have.", run.total_steps),
        ("lorad_run_loss", "Mean NLL per label token of its last step.", run.loss),
        ("lorad_run_learning_rate", "Of its last step.", run.learning_rate),
    )
    for name, meaning, value in told:
        page.one(name, "gauge", meaning, value, adapter=run.adapter_id)


def _write_gates(page: Exposition, verdicts: tuple[GateVerdict, ...]) -> None:
    page.family("lorad_gate_open", "gauge", "1: this gate lets training proceed.")
    for verdict in verdicts:
        page.sample("lorad_gate_open", verdict.open, gate=verdict.name)
    page.family("lorad_gate_age_seconds", "gauge", "Age of the reading that decided it.")
    for verdict in verdicts:
        page.sample("lorad_gate_age_seconds", verdict.age_seconds, gate=verdict.name)


def _write_readings(page: Exposition, found: Readings) -> None:
    told: tuple[tuple[str, str, str, Reading[Any]], ...] = (
        ("lorad_battery_level_percent", "level", "Charge of the battery.", found.level),
        ("lorad_battery_plugged", "plugged", "1: a charger is connected.", found.plugged),
        (
            "lorad_battery_temperature_celsius",
            "battery_temperature",
            "Of the battery.",
            found.battery_temperature,
        ),
        (
            "lorad_skin_temperature_celsius",
            "skin_temperature",
            "Of the case.",
            found.skin_temperature,
        ),
    )
    for name, _, meaning, reading in told:
        page.one(name, "gauge", meaning, reading.value)
    page.family("lorad_reading_age_seconds", "gauge", "Since the sensor was asked.")
    for _, sensor, _, reading in told:
        page.sample("lorad_reading_age_seconds", reading.age(boot_seconds()), sensor=sensor)


def _write_windows(page: Exposition, moment: Moment) -> None:
    page.one("lorad_window_open", "gauge", "1: in a training window.", moment.opening is not None)
    page.one("lorad_paused", "gauge", "1: the user has paused all training.", moment.paused)
    upcoming = moment.upcoming
    page.one(
        "lorad_next_window_timestamp_seconds",
        "gauge",
        "When the next window opens, seconds since 1970.",
        None if upcoming is None else upcoming.begins.timestamp(),
    )


def _write_engine(page: Exposition, context: Context, latest: Run | None) -> None:
    files = EngineFiles(context.home.engine)
    engine = engine_answer(
        context.settings,
        latest=latest,
        own=None,
        verdict=files.verdict(),
        demotions=files.demotions(),
        may_see=lambda _: True,
    )
    page.one(
        "lorad_engine_info",
        "gauge",
        "What computes the frozen products of runs now.",
        1,
        requested=engine.requested,
        engine=engine.name or "unknown",
        form=engine.form,
        soc=engine.soc,
    )
    page.one(
        "lorad_engine_demotions",
        "gauge",
        "Engines that are given up on this device.",
        sum(one.in_force for one in engine.demotions),
    )
    report = (latest.engine or {}) if latest is not None else {}
    page.family("lorad_engine_products", "gauge", "Frozen products of the latest run, by engine.")
    for name, products in _objects(report.get("products")).items():
        for product, count in _objects(products).items():
            if isinstance(count, int):
                page.sample("lorad_engine_products", count, engine=name, product=product)
    fallbacks = report.get("fallbacks")
    counts = [one.get("count") for one in fallbacks if isinstance(one, dict)] if fallbacks else []
    page.one(
        "lorad_engine_fallbacks",
        "gauge",
        "Products of the latest run that fell back to another engine.",
        sum(count for count in counts if isinstance(count, int)),
    )


def _write_room(page: Exposition, context: Context) -> None:
    database = context.home.database
    log = database.with_name(f"{database.name}-wal")
    for name, meaning, path in (
        ("lorad_database_bytes", "Of the database's file.", database),
        ("lorad_database_log_bytes", "Of its write-ahead log.", log),
    ):
        page.one(name, "gauge", meaning, path.stat().st_size if path.exists() else 0)
    storage, memory = device.storage(context.home.path), device.memory()
    page.one("lorad_storage_free_bytes", "gauge", "Where the home lies.", storage.free_bytes)
    page.one(
        "lorad_memory_free_bytes", "gauge", "What can be had without swapping.", memory.free_bytes
    )


def _objects(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
