"""What an adapter's settings must agree with: its base model's tokens, and the examples it has."""

from typing import Any

from sqlmodel import Session

from api_schemas.adapters import DEFAULT_MAX_TOKENS, AdapterChange, NewAdapter
from api_schemas.problems import FieldError
from service.context import Context
from service.door.length import LengthCheck
from service.door.problems import Refusal, invalid
from service.models import Manifest
from service.runs.trigger import require_base_model
from storage import example_labels
from storage.tables import Adapter

_LABELS_NAMED = 10
_LABEL_SHOWN = 60
_LONGEST_LABELS = 200


def max_tokens_of(new: NewAdapter, model: Manifest) -> int:
    """The ``max_tokens`` of a new adapter.

    Raises:
        Refusal: 422 if the model can't take as many.
    """
    if new.max_tokens is None:
        return min(DEFAULT_MAX_TOKENS, model.context_length)
    _check_max_tokens(new.max_tokens, model)
    return new.max_tokens


def top_layers_of(new: NewAdapter, model: Manifest) -> int | None:
    """The ``top_layers`` of a new adapter.

    Raises:
        Refusal: 422 if the model has fewer layers.
    """
    layers = model.config.num_hidden_layers
    if new.top_layers is not None and new.top_layers > layers:
        raise invalid(
            (
                "body.top_layers",
                f"must be at most {layers}, the layers of {model.name}; null: all of them",
            )
        )
    return new.top_layers


def check_labels(
    lengths: LengthCheck, model: Manifest, labels: list[str] | None, max_tokens: int
) -> None:
    """Refuse (422) labels that the model can't spell, or that leave no room for an input."""
    for index, label in enumerate(labels or ()):
        field = f"body.labels[{index}]"
        measure = lengths.measure(model, "", label)
        if not measure.exact:
            raise invalid((field, f"the tokens of {model.name} can't spell this label exactly"))
        if measure.least >= max_tokens:
            raise invalid(
                (
                    field,
                    f"needs {measure.least} tokens with the chat template and leaves no room for "
                    f"an input in max_tokens = {max_tokens}",
                )
            )


def settings_after(
    context: Context, session: Session, adapter: Adapter, change: AdapterChange
) -> dict[str, Any]:
    """The columns that ``change`` gives the adapter, checked in the writer's ``session``.

    Raises:
        Refusal: 422 for what the base model can't do, 409 for labels that examples still have,
            and where the base model is gone.
    """
    given = change.model_fields_set
    settings: dict[str, Any] = {
        name: getattr(change, name)
        for name in ("labels", "max_tokens", "too_long")
        if name in given
    }
    if "training" in given:
        settings["training"] = adapter.training | change.training.model_dump(exclude_unset=True)
    if "night" in given:
        settings["night"] = adapter.night | change.night.model_dump(exclude_unset=True)
    if "retention" in given:
        settings |= change.retention.model_dump(exclude_unset=True)
    labels = settings.get("labels", adapter.labels)
    max_tokens = settings.get("max_tokens", adapter.max_tokens)
    if (labels, max_tokens) != (adapter.labels, adapter.max_tokens):
        _check_tokens(context, session, adapter, labels, max_tokens)
    return settings


def _check_tokens(
    context: Context,
    session: Session,
    adapter: Adapter,
    labels: list[str] | None,
    max_tokens: int,
) -> None:
    require_base_model(context, adapter)
    model = context.models.get(adapter.base_model)
    _check_max_tokens(max_tokens, model)
    check_labels(context.lengths, model, labels, max_tokens)
    if labels is not None:
        _check_orphans(session, adapter, labels)
    elif max_tokens < adapter.max_tokens:
        _check_room(context.lengths, session, adapter, model, max_tokens)


def _check_max_tokens(max_tokens: int, model: Manifest) -> None:
    if max_tokens > model.context_length:
        raise invalid(
            (
                "body.max_tokens",
                f"must be at most the context of {model.name}, {model.context_length} tokens",
            )
        )


def _check_orphans(session: Session, adapter: Adapter, labels: list[str]) -> None:
    if adapter.labels is not None and set(adapter.labels) <= set(labels):
        return
    total, orphans = example_labels.with_other_labels(
        session, adapter.id, labels, limit=_LABELS_NAMED
    )
    if total > 0:
        raise Refusal(
            409,
            f"{total} examples have labels that would no longer be allowed; correct or delete "
            "them first, or keep their labels",
            [
                FieldError(
                    field="body.labels",
                    message=f"examples with the label '{_shown(label)}': {number}",
                )
                for label, number in orphans
            ],
        )


def _check_room(
    lengths: LengthCheck, session: Session, adapter: Adapter, model: Manifest, max_tokens: int
) -> None:
    # A token is at least a byte, so shorter labels fit. Of the others only the longest are
    # measured; one that slips through fails a run, which then says what to do.
    room = lengths.measure(model, "", "").least
    for label in example_labels.longest_labels(
        session, adapter.id, at_least=max_tokens - room, limit=_LONGEST_LABELS
    ):
        least = lengths.measure(model, "", label).least
        if least >= max_tokens:
            raise Refusal(
                409,
                f"an example's label needs {least} tokens with the chat template and would leave "
                f"no room for its input in max_tokens = {max_tokens}; allow more, or delete it",
            )


def _shown(label: str) -> str:
    return label if len(label) <= _LABEL_SHOWN else label[:_LABEL_SHOWN] + "…"
