"""The lines of termux/README.md that pair an app with curl, run as they stand."""

import json
import re
import subprocess
import sys
from pathlib import Path

from api_schemas.adapters import DEFAULT_MODEL
from tests.service.daemon import ROOT, Daemon, add_stand_in_model

GUIDE = (ROOT / "termux/README.md").read_text()


def test_pairing_from_termux(tmp_path: Path) -> None:
    start = GUIDE.index("## Pair an app")
    section = GUIDE[start : GUIDE.index("\n## ", start)]
    pair, save, use = re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    home = tmp_path / ".local/share/lorad"
    add_stand_in_model(home, DEFAULT_MODEL)
    programs = tmp_path / "bin"
    programs.mkdir()
    lorad = programs / "lorad"
    lorad.write_text(f'#!/bin/sh\nexec {sys.executable} -m service.cli.main "$@"\n')
    lorad.chmod(0o755)

    def run(script: str) -> str:
        done = subprocess.run(
            ["sh", "-euc", script],
            env={
                "HOME": str(tmp_path),
                "PATH": f"{programs}:/usr/bin:/bin",
                "PYTHONPATH": str(ROOT),
            },
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    with Daemon(home) as daemon:
        code = re.search(r"\d{4} \d{4}", run(pair))
        assert code is not None
        here = save.replace("CODE", code[0].replace(" ", "")), use
        for script in here:
            said = run("umask 077\n" + script.replace(":8765", f":{daemon.port}"))
        kept = tmp_path / ".config/lorad"
        assert {file.stat().st_mode & 0o777 for file in kept.iterdir()} == {0o600}
        first = json.JSONDecoder().raw_decode(said)[0]
        assert first["name"] == "inbox"
        rows = daemon.pages("/v1/adapters/inbox/examples", "examples", client="notes")[0]
        assert [row["external_id"] for row in rows] == ["msg-1"]
