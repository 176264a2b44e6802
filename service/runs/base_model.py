"""Whether the base model that an adapter was made for can be trained on."""

from service.models import ModelError, ModelFolder


def base_model_problem(models: ModelFolder, name: str, base_hash: str) -> str | None:
    """What keeps the base model of this name and identity from being trained on."""
    try:
        model = models.get(name)
    except ModelError as error:
        return str(error)
    if model.base_hash != base_hash:
        return (
            f"the adapter was made for the base model {base_hash}, but the model "
            f"'{name}' is now {model.base_hash}; create a new adapter for it"
        )
    return None
