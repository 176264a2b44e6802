"""The conductor in simulated time: real gates, chooser and database, played clocks."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from sqlmodel import col, select

from bench.simulated_phone import SimulatedPhone
from storage import adapters, history, nights, runs, training_pause
from storage.deletion import delete_adapter
from storage.ledgers import HistoryEntry, Night
from storage.tables import Run

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
MIDNIGHT = NOON + timedelta(hours=12)
MORNING = NOON + timedelta(hours=20)
HOUR = 3600.0


@pytest.fixture
def phone(tmp_path: Path) -> Iterator[SimulatedPhone]:
    phone = SimulatedPhone(tmp_path / "home", NOON)
    yield phone
    phone.close()


def kinds(phone: SimulatedPhone, *wanted: str) -> list[str]:
    return [entry.kind for entry in entries(phone, *wanted)]


def entries(phone: SimulatedPhone, *wanted: str) -> list[HistoryEntry]:
    with phone.database.read() as session:
        rows = session.exec(select(HistoryEntry).order_by(col(HistoryEntry.id))).all()
    return [row for row in rows if row.kind in wanted or not wanted]


def queue(phone: SimulatedPhone, adapter_id: int, **wishes: bool) -> int:
    """A run that somebody asked for."""
    with phone.database.write() as session:
        run = phone.chooser.make_run(session, adapter_id)
        run.origin = "request"
        run.in_window = wishes.get("in_window", False)
        run.override = wishes.get("override", False)
        session.add(run)
        return run.id


def run_of(phone: SimulatedPhone, adapter_id: int) -> Run:
    with phone.database.read() as session:
        run = runs.latest(session, adapter_id)
    assert run is not None
    return run


def used(phone: SimulatedPhone) -> dict[int, float]:
    with phone.database.read() as session:
        newest = session.exec(select(Night).order_by(col(Night.id).desc())).first()
        return {} if newest is None else nights.usage(session, newest.id)


def due(phone: SimulatedPhone, name: str = "mail", count: int = 100, **night: int) -> int:
    adapter_id = phone.add_adapter(name, client=name, **night)
    phone.add_examples(adapter_id, count)
    return adapter_id


def test_whoever_is_due_is_trained_in_the_window_and_not_before(phone: SimulatedPhone) -> None:
    adapter_id = due(phone)
    phone.run_until(MIDNIGHT - timedelta(hours=1, seconds=1))
    assert phone.trainer.stretches == []
    assert phone.sensors.reads == 0, "nobody wanted to train"
    phone.run_until(MORNING)
    [stretch] = phone.trainer.stretches
    assert stretch.begin == MIDNIGHT - timedelta(hours=1)
    assert (stretch.outcome, stretch.rule) == ("completed", "enough-new")
    assert stretch.minutes == pytest.approx(100, abs=2)
    run = run_of(phone, adapter_id)
    assert (run.origin, run.in_window) == ("night", True)
    assert used(phone)[adapter_id] == pytest.approx(6000, abs=120)
    [made] = entries(phone, "run-chosen")
    assert "enough-new: 100 new training examples came, and 20 make it due" in made.message


def test_the_night_is_told_in_the_history(phone: SimulatedPhone) -> None:
    mail = due(phone, "mail", 30)
    due(phone, "chat", 60)
    phone.sensors.level = 92.0
    phone.run_until(MIDNIGHT - timedelta(hours=1))
    phone.pass_time(600)
    phone.sensors.level, phone.sensors.battery_temperature = 81.0, 34.5
    phone.pass_time(600)
    phone.sensors.battery_temperature = 30.0
    phone.run_until(MORNING)
    told = entries(phone, "window-opened", "window-closed", "night-ended")
    assert [one.kind for one in told] == [
        "window-opened",
        "night-ended",
        "night-ended",
        "window-closed",
        "night-ended",
    ]
    whole = told[-1]
    assert whole.client_id is None
    assert re.fullmatch(
        r"in the night of 2026-11-30 23:00 2 adapters were trained for 9\d minutes in all; battery "
        r"from 92 % to 81 %, 34\.5 °C at the hottest",
        whole.message,
    )
    assert "mail" not in whole.message
    [own] = [one for one in told if one.adapter == "mail"]
    with phone.database.read() as session:
        adapter = adapters.by_id(session, mail)
        assert adapter is not None
        assert [one.id for one in history.page(session, adapter.client_id, before=None, limit=9)]
        assert own.client_id == adapter.client_id
    assert own.message.startswith("in the night of 2026-11-30 23:00 it was trained for 3")
    assert "Tue 01 Dec 23:00" in told[-2].message


def test_a_budget_ends_the_night_of_one_and_survives_the_daemon(phone: SimulatedPhone) -> None:
    chat, mail = due(phone, "chat", 1000, minutes=60), due(phone, "mail", 20)
    phone.run_until(MIDNIGHT - timedelta(hours=1))
    phone.pass_time(50 * 60)
    phone.start_daemon()  # killed, and its worker with it
    phone.trainer.interrupt(run_of(phone, chat).id, "killed")
    phone.run_until(MORNING)
    seconds = used(phone)
    assert 3600 - 30 <= seconds[chat] <= 3600 + 120
    assert seconds[mail] > 0
    run = run_of(phone, chat)
    assert run.status == "interrupted"
    assert run.error == (
        "its budget of 60 minutes for tonight is used up; it goes on in the next window, on "
        "Tue 01 Dec 23:00"
    )
    phone.run_until(MORNING + timedelta(days=1))
    assert phone.trainer.stretches[-1].adapter == "chat"
    assert phone.trainer.stretches[-1].rule == "unfinished"
    assert phone.trainer.stretches[-1].minutes == pytest.approx(60, abs=2)


def test_the_window_ends_the_nights_runs_and_not_what_was_asked_for_now(
    phone: SimulatedPhone,
) -> None:
    chat = due(phone, "chat", 1000, minutes=1440)
    phone.run_until(MORNING)
    run = run_of(phone, chat)
    assert run.status == "interrupted"
    assert run.error == "the window is over; it goes on in the next window, on Tue 01 Dec 23:00"
    asked = due(phone, "asked", 10)
    run_id = queue(phone, asked)
    phone.tick()
    assert phone.trainer.training == run_id, "at any hour"
    phone.pass_time(700)
    assert run_of(phone, asked).status == "completed"
    assert phone.trainer.training is None, "the other one waits for its window"
    assert used(phone).get(asked, 0.0) == 0.0, "what was asked for costs no night"


def test_a_run_for_the_window_waits_for_it(phone: SimulatedPhone) -> None:
    asked = due(phone, "asked", 10, train=False)
    queue(phone, asked, in_window=True)
    phone.run_until(MIDNIGHT - timedelta(hours=2))
    assert run_of(phone, asked).status == "queued"
    with phone.database.read() as session:
        because = phone.chooser.choose(session).because
    assert because == "the next window opens on Mon 30 Nov 23:00"
    assert phone.sensors.reads == 0
    phone.run_until(MIDNIGHT)
    assert run_of(phone, asked).status == "completed"


def test_a_phone_suspended_over_the_start_trains_when_it_wakes(phone: SimulatedPhone) -> None:
    due(phone)
    phone.tick()
    phone.sleep(13 * HOUR)
    phone.tick()
    assert phone.trainer.training is not None
    assert phone.clock.now == MIDNIGHT + timedelta(hours=1)
    assert kinds(phone, "window-opened") == ["window-opened"]


def test_three_missed_nights_are_one_window(phone: SimulatedPhone) -> None:
    due(phone)
    phone.tick()
    phone.sleep(3 * 24 * HOUR)
    phone.run_until(NOON + timedelta(days=3, hours=20))
    assert len(phone.trainer.stretches) == 1
    opened = entries(phone, "window-opened", "night-ended")
    assert [one.kind for one in opened].count("window-opened") == 1
    assert all("2026-12-03 23:00" in one.message for one in opened)


def test_a_night_that_suspend_swallowed_ends_when_the_phone_wakes(phone: SimulatedPhone) -> None:
    chat = due(phone, "chat", 1000, minutes=1440)
    phone.run_until(MIDNIGHT)
    phone.sleep(12 * HOUR)
    phone.tick()
    assert run_of(phone, chat).status == "interrupted"
    assert kinds(phone, "window-opened", "window-closed") == ["window-opened", "window-closed"]
    assert used(phone)[chat] == pytest.approx(13 * HOUR, abs=120), "a suspended phone's time counts"


def test_suspend_during_a_training_uses_its_budget(phone: SimulatedPhone) -> None:
    chat = due(phone, "chat", 1000)
    phone.run_until(MIDNIGHT)
    phone.sleep(1.5 * HOUR)
    phone.tick()
    run = run_of(phone, chat)
    assert (run.status, "budget of 120 minutes" in str(run.error)) == ("interrupted", True)


def test_a_clock_set_back_is_the_same_night(phone: SimulatedPhone) -> None:
    chat = due(phone, "chat", 1000)
    phone.run_until(MIDNIGHT)
    phone.clock.now -= timedelta(hours=3)  # 21:00
    phone.tick()
    assert run_of(phone, chat).status == "interrupted"
    assert used(phone)[chat] == pytest.approx(HOUR, abs=120), "no more for the clock's jump"
    phone.run_until(MORNING)
    assert used(phone)[chat] == pytest.approx(2 * HOUR, abs=150), "its budget is that of one night"
    with phone.database.read() as session:
        assert len(session.exec(select(Night)).all()) == 1
    assert kinds(phone, "window-opened", "window-closed") == [
        "window-opened",
        "window-closed",
        "window-opened",
        "window-closed",
    ]


def test_a_clock_set_forward_costs_no_budget(phone: SimulatedPhone) -> None:
    chat = due(phone, "chat", 1000)
    phone.run_until(MIDNIGHT)
    phone.clock.now += timedelta(hours=3)
    phone.tick()
    assert run_of(phone, chat).status == "running"
    assert used(phone)[chat] == pytest.approx(HOUR, abs=120)


def test_a_journey_ends_the_night_here_and_begins_it_there(phone: SimulatedPhone) -> None:
    chat = due(phone, "chat", 1000, minutes=1440)
    phone.run_until(MIDNIGHT)
    phone.clock.zone = ZoneInfo("America/Los_Angeles")  # 16:00
    phone.tick()
    run = run_of(phone, chat)
    assert run.error == "the window is over; it goes on in the next window, on Mon 30 Nov 23:00"
    phone.run_until(MIDNIGHT + timedelta(hours=7))
    assert run_of(phone, chat).status == "running"
    with phone.database.read() as session:
        assert len(session.exec(select(Night)).all()) == 1, "it is the same date's night"


def test_a_closed_gate_keeps_everybody_waiting_and_is_told_once(phone: SimulatedPhone) -> None:
    mail = due(phone)
    phone.sensors.plugged, phone.sensors.level = False, 60.0
    phone.run_until(MIDNIGHT)
    assert phone.trainer.stretches == []
    closed = entries(phone, "gate-closed")
    assert {one.message.split()[0] for one in closed} == {"charging", "level"}
    assert len(closed) == 2, "only changes are told"
    assert all(one.client_id is None for one in closed)
    assert any("reading 60 %" in one.message and "limit 80 %" in one.message for one in closed)
    phone.sensors.plugged, phone.sensors.level = True, 100.0
    phone.pass_time(600)
    assert run_of(phone, mail).status == "running"
    assert kinds(phone, "gate-opened") == ["gate-opened", "gate-opened"]


def test_a_gate_that_closes_interrupts_and_the_run_goes_on_by_itself(
    phone: SimulatedPhone,
) -> None:
    mail = due(phone)
    phone.run_until(MIDNIGHT - timedelta(minutes=50))
    phone.sensors.plugged = False
    phone.tick()
    run = run_of(phone, mail)
    assert run.status == "interrupted"
    assert "it goes on when that is over" in str(run.error)
    phone.pass_time(60)
    assert run_of(phone, mail).status == "interrupted"
    phone.sensors.plugged = True
    phone.pass_time(900)
    assert run_of(phone, mail).status == "running"
    assert run_of(phone, mail).id == run.id


def test_a_silent_sensor_keeps_the_gate_closed(phone: SimulatedPhone) -> None:
    mail = due(phone)
    queue(phone, mail, override=True)
    phone.sensors.battery_temperature = None
    phone.pass_time(120)
    assert run_of(phone, mail).status == "queued", "not even an override passes the unknown"
    phone.sensors.battery_temperature = 25.0
    phone.pass_time(900)
    assert run_of(phone, mail).status == "running"


def test_an_override_passes_where_the_others_wait(phone: SimulatedPhone) -> None:
    plain, forced = due(phone, "plain"), due(phone, "forced")
    queue(phone, plain)
    phone.sensors.plugged = False
    run_id = queue(phone, forced, override=True)
    phone.pass_time(60)
    assert phone.trainer.training == run_id
    assert run_of(phone, plain).status == "queued"
    phone.pass_time(60)
    assert phone.trainer.training == run_id, "and goes on"


def test_the_users_pause_holds_for_all_and_ends_by_itself(phone: SimulatedPhone) -> None:
    mail = due(phone)
    queue(phone, mail)
    phone.tick()
    assert run_of(phone, mail).status == "running"
    with phone.database.write() as session:
        training_pause.begin(session, phone.clock.ms + 3_600_000)
    phone.tick()
    run = run_of(phone, mail)
    assert run.status == "interrupted"
    assert run.error == "all training is paused until Mon 30 Nov 13:00; it goes on then"
    reads = phone.sensors.reads
    phone.pass_time(1800)
    assert run_of(phone, mail).status == "interrupted"
    assert phone.sensors.reads == reads, "nobody may train, so nothing is read"
    phone.run_until(phone.clock.now + timedelta(seconds=1830))
    assert run_of(phone, mail).status == "running"
    assert kinds(phone, "training-resumed") == ["training-resumed"]


def test_a_failing_run_is_not_tried_again_every_night(phone: SimulatedPhone) -> None:
    mail = due(phone)
    phone.trainer.failing, phone.trainer.seconds_per_example = True, 10
    phone.run_until(NOON + timedelta(days=3))
    assert len(phone.trainer.stretches) == 1
    phone.add_examples(mail, 3)
    phone.run_until(NOON + timedelta(days=4, hours=12))
    assert len(phone.trainer.stretches) == 1, "three new ones are not enough"
    phone.run_until(NOON + timedelta(days=6))
    assert [one.rule for one in phone.trainer.stretches] == ["enough-new", "waited-long"]
    phone.add_examples(mail, 20)
    phone.trainer.failing = False
    phone.run_until(NOON + timedelta(days=7))
    assert phone.trainer.stretches[-1].outcome == "completed"


def test_nights_that_are_turned_off_end_what_the_night_began(phone: SimulatedPhone) -> None:
    mail = due(phone)
    phone.run_until(MIDNIGHT - timedelta(minutes=50))
    with phone.database.write() as session:
        adapter = adapters.by_id(session, mail)
        assert adapter is not None
        adapters.change(session, adapter, {"night": {"train": False}})
    phone.tick()
    assert "nights were turned off" in str(run_of(phone, mail).error)
    phone.run_until(NOON + timedelta(days=2))
    assert run_of(phone, mail).status == "interrupted"


def test_an_adapter_deleted_in_its_night_owes_nothing(phone: SimulatedPhone) -> None:
    mail = due(phone)
    phone.run_until(MIDNIGHT - timedelta(minutes=50))
    with phone.database.write() as session:
        adapter = adapters.by_id(session, mail)
        assert adapter is not None
        delete_adapter(session, adapter)
    phone.trainer.training = None
    phone.run_until(MORNING)
    assert used(phone) == {}
    assert "nothing was trained" in entries(phone, "night-ended")[-1].message


def test_who_asks_for_the_gates_has_the_sensors_read(phone: SimulatedPhone) -> None:
    phone.tick()
    assert not any(one.open for one in phone.conductor.verdicts())
    assert phone.sensors.reads == 0
    phone.tick()
    assert phone.sensors.reads == 1
    assert all(one.open for one in phone.conductor.verdicts())
    phone.tick()
    assert phone.sensors.reads == 1, "it is fresh enough"
    assert kinds(phone, "gate-opened", "gate-closed") == [], "nobody wanted to train"


def test_the_pace_is_told_at_every_look(phone: SimulatedPhone) -> None:
    due(phone)
    phone.run_until(MIDNIGHT - timedelta(minutes=50))
    assert len(phone.trainer.duties) >= 5
