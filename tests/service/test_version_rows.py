"""A version's holdout rows: they lie in its folder, and a status never reads them."""

import shutil
import sqlite3
from contextlib import closing

from tests.service.daemon import Daemon


def trained(daemon: Daemon) -> None:
    daemon.create_adapter()
    daemon.post_examples()
    run = daemon.wait_until_ended(daemon.train())
    assert run["status"] == "completed", run


def test_rows_come_from_the_folder_and_410_says_that_it_is_gone(daemon: Daemon) -> None:
    trained(daemon)
    detail = daemon.http.get(daemon.path("/versions/1")).json()
    assert len(detail["holdout_rows"]) == 40
    manifest = next(daemon.home.glob("adapters/*/versions/run-*/version.json"))
    manifest.write_text("{")
    assert daemon.http.get(daemon.path("/versions/1")).status_code == 410
    shutil.rmtree(manifest.parent)
    gone = daemon.http.get(daemon.path("/versions/1"))
    assert gone.status_code == 410
    assert gone.json()["detail"].startswith("the files of this version are gone")
    listed = daemon.http.get(daemon.path("/versions")).json()["versions"]
    assert [version["number"] for version in listed] == [1]
    assert daemon.adapter()["active_version"]["number"] == 1


def test_the_database_keeps_a_version_without_its_rows(daemon: Daemon) -> None:
    trained(daemon)
    with closing(sqlite3.connect(daemon.home / "lorad.db")) as database:
        [[manifest]] = database.execute("SELECT manifest FROM versions").fetchall()
    assert '"files"' in manifest
    assert '"example_id"' not in manifest
