"""The daemon's settings: environment variables LORAD_…, or options of `lorad serve`."""

import os
from pathlib import Path
from typing import Any, Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from service.log_lines import Style

EngineName = Literal["auto", "qnn", "onnx_cpu", "torch_cpu"]
FormName = Literal["auto", "inputs", "table"]
SocPart = Literal["", "SM8550", "SM8650", "SM8750", "SM8850"]


def _default_threads() -> int:
    return min(4, os.cpu_count() or 1)


class Settings(BaseSettings):
    """One table of all settings."""

    model_config = SettingsConfigDict(env_prefix="LORAD_", frozen=True, extra="ignore")

    home: Path = Field(
        default=Path("~/.local/share/lorad"),
        description="The folder that holds everything lorad keeps.",
    )
    port: int = Field(default=8765, ge=0, le=65_535, description="On 127.0.0.1; 0: a free one.")
    socket: str = Field(
        default="",
        description="Path of the Unix socket; empty: lorad.sock in the home; `none`: no socket.",
    )
    log: Style = Field(
        default="plain", description="How the lines of the log are written: `plain` or `json`."
    )
    engine: EngineName = Field(
        default="auto", description="What computes the frozen products of new runs."
    )
    form: FormName = Field(
        default="auto",
        description="How the NPU's graphs get the frozen weights of new runs: as `inputs`, or out "
        "of a `table` in one shared context; `auto` takes the table where it can be had.",
    )
    soc: SocPart = Field(
        default="",
        description="The Snapdragon that the NPU's graphs of new runs are made for; empty: the "
        "phone's own.",
    )
    qnn_libraries: str = Field(
        default="",
        description="The folder of Qualcomm's libraries for Android that `termux/fetch-qnn.sh` "
        "fills; empty: `qnn` in the home. Not looked at where onnxruntime-qnn is installed.",
    )
    threads: int = Field(
        default_factory=_default_threads, ge=1, le=64, description="CPU threads of new runs."
    )
    prefix_cache_mb: int = Field(
        default=256,
        ge=0,
        le=2**20,
        description="For an adapter in the top layers: how many MiB of its examples' rows of the "
        "layers below are kept, in new runs; 0: none, and each step computes them.",
    )
    memory_mb: int = Field(
        default=1024,
        ge=64,
        le=1_048_576,
        description="MiB that the worker of new runs takes at its most, Python and the base model "
        "included; a run that can't do with that is refused, and training waits until so much is "
        "available.",
    )
    sensors: Literal["auto", "termux", "sysfs", "fake"] = Field(
        default="auto",
        description="What is asked for battery and temperature. `fake` says what is in "
        "sensors.json of the home, or that all is well: for machines without a battery.",
    )
    wake_lock: Literal["auto", "off"] = Field(
        default="auto",
        description="`auto`: where Termux's commands for it are installed, the phone is kept awake "
        "while a worker trains. There is one such lock in Termux: giving it back also ends one "
        "that the user took by hand.",
    )
    notification: Literal["auto", "off"] = Field(
        default="auto",
        description="`auto`: where Termux's commands for it are installed, a notification tells "
        "how far the training is, with buttons to pause and to stop it.",
    )
    nice: int = Field(default=10, ge=0, le=19, description="How much the worker yields to others.")
    retry_seconds: float = Field(
        default=30.0,
        ge=0,
        le=3600,
        description="Before a run whose worker was killed or crashed goes on; doubled each time.",
    )
    hang_seconds: float = Field(
        default=60.0,
        ge=1,
        le=3600,
        description="A worker that says nothing for ten median steps is killed, but not before "
        "this; while it loads or measures, after 15 times this.",
    )
    stop_seconds: float = Field(
        default=30.0,
        gt=0,
        le=600,
        description="How long the worker may take for its last checkpoint when the daemon stops.",
    )
    predict_while_training: Literal["refuse", "serve"] = Field(
        default="refuse",
        description="What becomes of predictions while a run trains: `refuse` them with 503, or "
        "let its worker `serve` them between two steps, if they are of the same base model.",
    )
    predict_idle_seconds: float = Field(
        default=60.0,
        ge=0,
        le=86_400,
        description="Without a prediction for so long, the process that predicts ends, and gives "
        "its memory back.",
    )
    predict_seconds: float = Field(
        default=300.0,
        gt=0,
        le=3600,
        description="How long an answer, or the next piece of a streamed one, may take before the "
        "process that predicts is ended.",
    )
    worker_module: str = Field(
        default="trainer.worker",
        pattern=r"^[A-Za-z_][\w.]*$",
        description="The program that trains, as a Python module; tests put a stand-in here.",
    )
    predictor_module: str = Field(
        default="trainer.predictor",
        pattern=r"^[A-Za-z_][\w.]*$",
        description="The program that predicts, as a Python module; tests put a stand-in here.",
    )

    @property
    def engine_options(self) -> dict[str, Any]:
        """What is told to whoever computes with a base model of the engine to do it on."""
        return {
            "engine": self.engine,
            "form": self.form,
            "soc": self.soc or None,
            "threads": self.threads,
        }

    @property
    def memory_bytes(self) -> int:
        """``memory_mb`` in bytes."""
        return self.memory_mb * 1024 * 1024
