"""Base models that are installed on this phone."""

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


class ModelList(Answer):
    """Installed base models by name."""

    models: list[BaseModelInfo]


class Health(Answer):
    """The daemon answers."""

    status: str = "ok"
