"""Base models that are installed on this phone."""

from typing import Literal

from pydantic import Field

from api_schemas.base import Answer


class BaseModelInfo(Answer):
    """The essentials of an installed base model; ``base_hash`` is its identity.

    ``format`` is what was asked for when it was added, ``formats`` what its matrices have become,
    and ``bytes_per_parameter`` what both cost in the file.
    """

    name: str
    base_hash: str
    format: str
    formats: list[str]
    bytes_per_parameter: float
    parameters: int
    context_length: int


class AdapterAsModel(Answer):
    """An adapter in OpenAI's words: its name is a ``model`` of `POST /v1/chat/completions`."""

    id: str
    object: Literal["model"] = "model"
    created: int = Field(description="Seconds since 1970 UTC.")
    owned_by: str = Field(description="The client whose adapter it is.")


class ModelList(Answer):
    """Installed base models by name; ``object`` and ``data`` are the list that OpenAI's have."""

    object: Literal["list"] = "list"
    data: list[AdapterAsModel] = Field(description="The client's adapters, by name.")
    models: list[BaseModelInfo]


class Health(Answer):
    """The daemon answers."""

    status: str = "ok"
