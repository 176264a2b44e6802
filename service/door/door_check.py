"""The check at the door: what an adapter can't be trained on is refused before it is kept."""

from api_schemas.problems import FieldError
from service.door.length import LengthCheck
from service.door.posted import Posted
from service.models import ModelFolder
from storage.tables import Adapter


def check(models: ModelFolder, lengths: LengthCheck, adapter: Adapter, posted: Posted) -> list[int]:
    """How many tokens training will cut from the end of each example's input.

    Raises:
        Refusal: 422 naming every example with a label that is not the adapter's
            or can't be spelled, or that is too long.
        service.models.ModelError: the adapter's base model is gone or not usable.
    """
    model = models.get(adapter.base_model)
    labels = None if adapter.labels is None else frozenset(adapter.labels)
    faults: list[FieldError] = []
    cut: list[int] = []
    for index, example in enumerate(posted.examples):
        if labels is not None and example.label not in labels:
            faults.append(posted.fault(index, "label", "must be one of the adapter's labels"))
            continue
        measure = lengths.measure(model, example.input, example.label)
        over = max(0, measure.total - adapter.max_tokens)
        cut.append(over)
        if not measure.exact:
            message = f"the tokens of {model.name} can't spell this label exactly"
            faults.append(posted.fault(index, "label", message))
        elif measure.least >= adapter.max_tokens:
            message = (
                f"has {measure.label} tokens and leaves no room for an input in "
                f"max_tokens = {adapter.max_tokens}"
            )
            faults.append(posted.fault(index, "label", message))
        elif over and adapter.too_long == "refuse":
            message = (
                f"with its label and the chat template this is {measure.total} tokens, and the "
                f"adapter takes at most {adapter.max_tokens}; shorten it, or give the adapter "
                "too_long = cut"
            )
            faults.append(posted.fault(index, "input", message))
    posted.refuse(faults)
    return cut
