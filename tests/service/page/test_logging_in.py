"""Into the page and out of it: codes, lost tokens, a daemon that goes, and one that is none."""

import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.service.apps import new_code
from tests.service.daemon import Daemon, until
from tests.service.impostor import Impostor, http_answer, true_proof
from tests.service.page.conftest import OpenTab

pytestmark = pytest.mark.browser


@pytest.fixture
def lasting(home: Path) -> Iterator[Daemon]:
    """A daemon that comes back at the same port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with Daemon(home, environment={"LORAD_PORT": str(port)}) as daemon:
        daemon.create_adapter()
        daemon.post_examples()
        yield daemon


def test_a_code_opens_the_page_and_a_wrong_one_is_told_why(
    shared: Daemon, open_tab: OpenTab
) -> None:
    tab = open_tab(shared)
    tab.expects(403)
    page = tab.page
    tab.expect(page.get_by_label("Pairing code")).to_be_focused()
    page.keyboard.type("12345")
    page.keyboard.press("Enter")
    tab.sees("A code has eight digits")
    assert not tab.asked("/v1/")
    code = new_code(shared, "page", "admin", replace=True)
    wrong = "0000 0000" if code != "00000000" else "0000 0001"
    page.get_by_label("Pairing code").fill(wrong)
    page.keyboard.press("Enter")
    tab.sees("No waiting code is this one.")
    tab.expect(page.get_by_role("alert").filter(has_text="No waiting code")).to_be_visible()
    tab.expect(page.get_by_label("Pairing code")).to_be_focused()
    page.keyboard.type(f"{code[:4]} {code[4:]}")  # over the wrong one, which is selected
    page.keyboard.press("Enter")
    tab.expect(page.locator("#board")).to_be_visible()
    tab.expect(page.get_by_label("Pairing code")).to_be_hidden()
    for gate in shared.http.get("/v1/device").json()["gates"]:
        item = page.locator(f"#gates li[data-item={gate['name']}]")
        tab.sees("open" if gate["open"] else "closed", item)
        tab.expect(item).to_contain_text(gate["reason"][1:30])


@pytest.mark.slow
def test_a_reload_and_a_revoked_token_lead_back_to_a_code(
    shared: Daemon, open_tab: OpenTab
) -> None:
    tab = open_tab(shared)
    tab.log_in()
    tab.page.reload()
    tab.expect(tab.page.get_by_label("Pairing code")).to_be_visible()
    tab.expect(tab.page.locator("#board")).to_be_hidden()
    tab.log_in()
    tab.expects(401)
    assert shared.http.post("/v1/clients/page/revoke").status_code == 200
    tab.sees("The daemon no longer knows this tab's token.")
    assert not tab.page.locator("#adapters").inner_text()  # nothing of the device stays on screen
    tab.log_in()


def test_logging_out_makes_the_token_worthless(shared: Daemon, open_tab: OpenTab) -> None:
    tab = open_tab(shared)
    tab.log_in()
    [sent] = {one.headers["authorization"] for one in tab.asked("/v1/device")}

    def status() -> int:
        url = f"{tab.origin}/v1/client"
        return httpx.get(url, headers={"Authorization": sent}, trust_env=False).status_code

    assert status() == 200
    tab.press("Log out")
    tab.expect(tab.page.get_by_label("Pairing code")).to_be_visible()
    assert status() == 401


@pytest.mark.slow
def test_a_daemon_that_goes_is_missed_and_found_again(lasting: Daemon, open_tab: OpenTab) -> None:
    own = lasting
    own.script(steps=1000, step_seconds=0.1)
    run_id = own.train()
    tab = open_tab(own)
    tab.expects(refused=True)
    tab.log_in()
    tab.sees(f"Training {own.name}")
    until(lambda: own.run(run_id)["step"] > 3)
    own.stop()
    tab.sees(f"No daemon answers at 127.0.0.1:{own.port}. Start it with: lorad serve")
    tab.sees("what you see may be old")
    tab.expect(tab.card()).to_be_visible()
    own.start()
    tab.expect(tab.page.locator("#gone")).to_be_hidden()
    tab.sees(f"Training {own.name}")
    until(lambda: tab.page.wait_for_timeout(50) or len(tab.asked("/events")) >= 2)
    hellos = tab.asked("/v1/hello")
    assert hellos
    assert not any("authorization" in one.headers for one in hellos)


@pytest.mark.slow
def test_who_takes_the_daemons_port_is_not_told_the_token(own: Daemon, open_tab: OpenTab) -> None:
    tab = open_tab(own)
    tab.expects(refused=True)
    tab.log_in()
    own.stop()
    tab.sees("No daemon answers")

    def behave(connection: socket.socket, number: int, impostor: Impostor) -> None:
        connection.sendall(http_answer(true_proof(impostor.hear(connection, number), own.port)))

    with Impostor(behave, own.port) as impostor:  # it proves itself with another key
        tab.sees("can't prove that it is the daemon this page was paired with")
        assert impostor.heard
        assert not any(b"uthorization" in heard for heard in impostor.heard)
