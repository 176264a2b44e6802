"""The engine: what computes the frozen products of the runs on this device, and why."""

from typing import Any, Literal

from pydantic import Field

from api_schemas.base import Answer, Timestamp


class FormatShare(Answer):
    """The frozen matrices of one format."""

    matrices: int
    parameters: int
    bytes: int


class Precision(Answer):
    """In which formats the frozen weights of a run lie, and how large they are."""

    formats: dict[str, FormatShare] = Field(description="By the format: fp16, int8, int4, …")
    bytes_per_parameter: float | None


class Demotion(Answer):
    """An engine that was given up on this device."""

    engine: str
    cause: str = Field(description="In one sentence.")
    phase: str | None = Field(description="What it was at: opening, first product or training.")
    step: int | None = Field(description="The last step of the run that was heard of.")
    run: int | None = Field(description="Told to the run's client and to the scope admin only.")
    at: Timestamp | None
    in_force: bool = Field(
        description="Whether the doctor's last verdict is of the same device, system and "
        "libraries; a demotion on another one is history."
    )


class SelfTest(Answer):
    """One self-test of one engine."""

    name: str
    engine: str | None
    form: str | None
    passed: bool
    cause: str | None = Field(description="Why it failed, in one sentence.")
    remedy: str | None = Field(description="What to do about it.")


class Doctor(Answer):
    """The verdict of the self-tests: what `lorad doctor` says."""

    engine: str = Field(description="The engine to use by its word.")
    form: str | None
    why: str
    at: Timestamp | None
    age_seconds: float | None
    checks: list[SelfTest]


class Engine(Answer):
    """What computes the frozen products of runs now.

    Told from the latest run, the doctor's verdict and the demotions: the latest run is the client's
    own, for a token with the scope admin anybody's.
    """

    requested: Literal["auto", "qnn", "onnx_cpu", "torch_cpu"] = Field(
        description="The daemon's setting."
    )
    name: str | None = Field(description="Null where nothing is known yet.")
    form: str | None = Field(description="How a product gets its weight: codes, inputs or table.")
    device: str | None = Field(description="What executes the products.")
    soc: str | None = Field(description="The Snapdragon that the NPU's graphs are made for.")
    why: str
    fallback: str | None = Field(
        description="Why products that were meant for another engine are not computed by it."
    )
    precision: Precision | None = Field(description="Of the latest run.")
    demotions: list[Demotion]
    doctor: Doctor | None
    run: int | None = Field(description="The client's own latest run with an engine to tell of.")
    report: dict[str, Any] | None = Field(description="What that run's engine has counted.")
