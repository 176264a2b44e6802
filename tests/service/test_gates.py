"""The gates one by one: what opens and closes each, as a table for people to read."""

from service.gates.gatekeeper import Gatekeeper
from service.gates.limits import Limits
from service.gates.verdict import GATES, GateVerdict
from tests.service.gate_readings import readings


def verdict_of(keeper: Gatekeeper, name: str) -> GateVerdict:
    [verdict] = [verdict for verdict in keeper.verdicts if verdict.name == name]
    return verdict


def test_before_the_first_reading_all_gates_are_closed() -> None:
    keeper = Gatekeeper(Limits())
    assert [verdict.name for verdict in keeper.verdicts] == list(GATES)
    assert not any(verdict.open or verdict.overridable for verdict in keeper.verdicts)
    assert "no sensor has been read yet" in (keeper.refusal(override=True) or "")


def test_a_phone_on_which_all_is_well_may_train() -> None:
    keeper = Gatekeeper(Limits(), clock=lambda: 10.0)
    assert all(verdict.open for verdict in keeper.update(readings(8), 10, training=False))
    assert keeper.refusal(override=False) is None
    assert {verdict.age_seconds for verdict in keeper.verdicts} == {2}
