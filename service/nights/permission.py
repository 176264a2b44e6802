"""Whether a run that is being trained may go on."""

from api_schemas.nights import NightOptions
from service.nights.moment import Moment
from storage.tables import Adapter, Run


def refusal_of(
    run: Run, adapter: Adapter, moment: Moment, gates: str | None, seconds_tonight: float
) -> str | None:
    """Why the run must stop now and when it goes on, in words; None: it may go on.

    Args:
        run: the run.
        adapter: its adapter.
        moment: the moment.
        gates: why the gates refuse it, if they do.
        seconds_tonight: for how long the adapter has been trained in this night.
    """
    if moment.paused:
        return f"{moment.pause()}; it goes on then"
    if gates is not None:
        return f"{gates}; it goes on when that is over"
    if not run.in_window:
        return None
    if moment.opening is None:
        return f"the window is over; {moment.resumption()}"
    night = NightOptions.model_validate(adapter.night)
    if run.origin == "night" and not night.train:
        return (
            "its nights were turned off (night.train); it goes on when asked, or once they are on"
        )
    if seconds_tonight >= night.minutes * 60:
        return (
            f"its budget of {night.minutes} minutes for tonight is used up; {moment.resumption()}"
        )
    return None
