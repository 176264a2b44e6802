"""The arrows of the house, as pyproject.toml states them, really stop a wrong import."""

import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from tests.house.repository import ROOMS, ROOT

LINT_IMPORTS = Path(sysconfig.get_path("scripts")) / "lint-imports"


def lint(house: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [LINT_IMPORTS, "--no-cache", "--no-logo"],
        cwd=house,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """Empty rooms under the real contracts."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for room in ROOMS:
        (tmp_path / room).mkdir()
        (tmp_path / room / "__init__.py").touch()
    return tmp_path


def test_the_allowed_arrows_are_allowed(house: Path) -> None:
    (house / "trainer" / "run.py").write_text(
        "import npu\nimport storage\nimport torch\nimport tokenizers\n"
    )
    (house / "service" / "app.py").write_text(
        "import api_schemas\nimport storage\nimport fastapi\n"
    )
    (house / "npu" / "engine.py").write_text("import onnxruntime\nimport torch\n")
    result = lint(house)
    assert result.returncode == 0, result.stdout
    assert "0 broken" in result.stdout


@pytest.mark.parametrize(
    ("room", "statement"),
    [
        ("api_schemas", "import storage"),
        ("api_schemas", "import service"),
        ("storage", "from api_schemas import examples"),
        ("storage", "import trainer"),
        ("storage", "import torch"),
        ("npu", "import storage"),
        ("npu", "import trainer"),
        ("trainer", "import service"),
        ("trainer", "import api_schemas"),
        ("trainer", "from transformers import AutoTokenizer"),
        ("service", "import trainer"),
        ("service", "import npu"),
        ("service", "from torch import nn"),
        ("service", "import onnxruntime"),
        ("service", "def late() -> None:\n    import peft"),
    ],
)
def test_a_wrong_arrow_is_refused(house: Path, room: str, statement: str) -> None:
    (house / "api_schemas" / "examples.py").touch()
    (house / room / "wrong.py").write_text(statement + "\n")
    result = lint(house)
    assert result.returncode == 1, result.stdout
    assert f"{room}.wrong" in result.stdout


def test_a_detour_is_refused_too(house: Path) -> None:
    (house / "storage" / "database.py").write_text("import torch\n")
    (house / "service" / "app.py").write_text("import storage.database\n")
    result = lint(house)
    assert result.returncode == 1
    assert "service.app -> storage.database" in result.stdout
