"""What the page does: pause, activate, delete and fetch, and only after a question what is lost."""

import io
import re
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.service.daemon import Daemon, until
from tests.service.page.conftest import OpenTab

pytestmark = pytest.mark.browser


def test_all_training_is_paused_for_a_while_and_goes_on(own: Daemon, open_tab: OpenTab) -> None:
    tab = open_tab(own)
    tab.log_in()
    tab.page.get_by_text("Pause all training…").click()
    tab.page.get_by_label("For how long?").select_option("one hour")
    tab.press("Pause", tab.page.locator("#now"))
    tab.expect(tab.page.get_by_role("heading", level=1)).to_have_text("All training is paused")
    pause = own.http.get("/v1/pause").json()
    ahead = datetime.fromisoformat(pause["until"]) - datetime.now(UTC)
    assert 3500 < ahead.total_seconds() <= 3600
    tab.press("Let it train again")
    tab.expect(tab.page.get_by_role("heading", level=1)).not_to_have_text("All training is paused")
    assert not own.http.get("/v1/pause").json()["paused"]
    tab.expects(422)
    tab.page.get_by_text("Pause all training…").click()
    tab.page.get_by_label("For how long?").select_option("until a time…")
    tab.page.get_by_label("Until", exact=True).fill("2020-01-01T07:00")
    tab.press("Pause", tab.page.locator("#now"))
    tab.sees("must lie ahead: a pause that ends in the past is none")  # the API's own sentence


def test_a_run_is_paused_goes_on_and_is_ended(own: Daemon, open_tab: OpenTab) -> None:
    own.script(steps=1000, step_seconds=0.05)
    run_id = own.train()
    tab = open_tab(own)
    tab.log_in()
    tab.press("Pause this run")
    until(lambda: own.run(run_id)["status"] == "paused")
    tab.press("Go on", tab.card())
    until(lambda: own.run(run_id)["status"] == "running")
    tab.expect(tab.page.locator("#run")).to_be_visible()
    tab.press("End it…", tab.page.locator("#run"))
    tab.sees("what it has learned since it began goes with them")
    tab.press("End it", tab.page.get_by_role("dialog"))
    until(lambda: own.run(run_id)["status"] == "cancelled")


def test_an_older_version_is_rolled_back_to(ready: Daemon, open_tab: OpenTab) -> None:
    ready.wait_until_ended(ready.train())
    better = {"loss": 0.3, "label_nll": 0.2, "accuracy": 0.95}
    ready.script(after=better, active={"loss": 0.5, "label_nll": 0.4, "accuracy": 0.9})
    ready.wait_until_ended(ready.train())
    assert ready.adapter()["active_version"]["number"] == 2
    tab = open_tab(ready)
    tab.log_in()
    tab.card().get_by_text("2 versions").click()
    tab.press(f"Roll back to it: version 1 of {ready.name}")
    tab.sees(f"Version 1 of {ready.name} is active.")
    tab.sees("Version 1 is active", tab.card())
    assert ready.adapter()["active_version"]["number"] == 1
    tab.press(f"Delete version 2 of {ready.name}")
    tab.press("Delete version 2", tab.page.get_by_role("dialog"))
    tab.sees(f"Version 2 of {ready.name} is deleted.")
    assert ready.http.get(ready.path("/versions/2")).status_code == 404
    tab.press(f"Use none instead of version 1 of {ready.name}")
    tab.sees(f"No version of {ready.name} is active")
    assert ready.adapter()["active_version"] is None


def test_a_version_is_downloaded(ready: Daemon, open_tab: OpenTab) -> None:
    ready.wait_until_ended(ready.train())
    tab = open_tab(ready)
    tab.log_in()
    tab.card().get_by_text("1 version", exact=True).click()
    with tab.page.expect_download() as download:
        tab.press(f"Download version 1 of {ready.name} as PEFT")
    assert download.value.suggested_filename == f"{ready.name}-1-peft.zip"
    data = Path(download.value.path()).read_bytes()
    assert data == ready.http.get(ready.path("/versions/1/download")).content
    assert "adapter_model.safetensors" in zipfile.ZipFile(io.BytesIO(data)).namelist()


def test_deleting_an_adapter_names_what_goes_and_asks(ready: Daemon, open_tab: OpenTab) -> None:
    ready.wait_until_ended(ready.train())
    tab = open_tab(ready)
    tab.log_in()
    delete = f"Delete adapter {ready.name}"
    tab.press(delete)
    dialog = tab.page.get_by_role("dialog", name=re.compile(f"Delete adapter {ready.name}"))
    tab.sees("50 examples (10 to learn from, 40 held out)", dialog)
    tab.sees("1 version with their files", dialog)
    tab.expect(dialog.get_by_role("button", name="Keep it")).to_be_focused()
    tab.page.keyboard.press("Escape")
    tab.expect(dialog).to_be_hidden()
    assert ready.http.get(ready.path()).status_code == 200
    tab.press(delete)
    tab.press(f"Delete {ready.name}", dialog)
    tab.sees(f"{ready.name} is deleted. No byte of its examples is left in lorad's files.")
    tab.expect(tab.card()).to_have_count(0)
    assert ready.http.get(ready.path()).status_code == 404


def test_what_the_daemon_refuses_is_said_in_its_words(shared: Daemon, open_tab: OpenTab) -> None:
    tab = open_tab(shared)
    tab.expects(409)
    tab.log_in()
    tab.press("Train empty now")
    answer = shared.http.post("/v1/adapters/empty/runs", json={})
    assert answer.status_code == 409
    tab.expect(
        tab.page.get_by_role("alert").filter(has_text=answer.json()["detail"])
    ).to_be_visible()
