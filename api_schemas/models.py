"""Base models that are installed on this phone."""

from api_schemas.base import Answer


class BaseModelInfo(Answer):
    """The essentials of an installed base model; ``base_hash`` is its identity."""

    name: str
    base_hash: str
    format: str
    parameters: int
    context_length: int


class ModelList(Answer):
    """Installed base models by name."""

    models: list[BaseModelInfo]


class Health(Answer):
    """The daemon answers."""

    status: str = "ok"
