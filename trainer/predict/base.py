"""A base model that is open to be asked: its engine, its tokenizer, and the adapters on it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from npu.engine import Engine
from npu.engine_guard import EngineGuard
from npu.opening import open_engine
from npu.weights import FrozenWeights
from trainer.lora import LoraAdapter
from trainer.models.config import DecoderConfig
from trainer.models.decoder import Decoder
from trainer.models.layout import matrices_multiplied_by
from trainer.predict.question import Head
from trainer.predict.refused import Refused
from trainer.predict.room import KEPT_ADAPTERS, Room, only_predicting, room_to_predict
from trainer.predict.shelf import AdapterShelf
from trainer.tokens import ChatTokenizer


@dataclass(frozen=True)
class OpenBase:
    """What answers questions of one base model."""

    decoder: Decoder
    tokenizer: ChatTokenizer
    adapters: AdapterShelf
    room: Room

    @property
    def engine_name(self) -> str:
        """The engine that computes: `torch_cpu` once another one was given up."""
        engine = self.decoder.engine
        return engine.name if engine.ledger.given_up is None else "torch_cpu"

    def adapter(self, head: Head) -> LoraAdapter | None:
        """The adapter that is asked, None for the bare base. Raises Refused."""
        return self.adapters.get(head.version)


def open_weights(home: Path, head: Head) -> FrozenWeights:
    """The base model's weights, read once from end to end.

    Raises:
        Refused: if they aren't there, are damaged, or are others than the question is for.
    """
    path = home / "models" / head.model / "weights.lorad"
    try:
        weights = FrozenWeights.open(path, verify=True)
    except (OSError, ValueError) as error:
        raise Refused(
            409,
            f"expected a whole base model {head.model}, found a {type(error).__name__} when it was"
            " opened; add the model again",
        ) from error
    check_base(head, weights.content_hash)
    return weights


def check_base(head: Head, found: str) -> None:
    """Raise Refused if the question is for another base model than the one that is there."""
    if head.base_hash != found:
        raise Refused(
            409,
            f"expected base model {head.model} with {head.base_hash}, found {found}; adapters"
            " belong to one base, so train this one anew",
        )


def open_base(home: Path, head: Head, guard: EngineGuard, budget: int) -> tuple[OpenBase, Engine]:
    """Open the base model that a question is for on the engine that it names.

    Args:
        home: lorad's home folder.
        head: of the question.
        guard: of the engine.
        budget: bytes that the process may take at its most.

    Raises:
        Refused: if the model can't be had.
    """
    weights = open_weights(home, head)

    config = DecoderConfig.from_json(weights.metadata["config"])
    options = head.engine_options(guard.folder / "contexts")
    products = matrices_multiplied_by(config)
    engine = open_engine(weights, head.engine, options, guard, products)
    room = room_to_predict(only_predicting(config, weights, engine), budget - KEPT_ADAPTERS)
    decoded = min(room.spare, engine.decodable_bytes)
    engine.keep_decoded(decoded)
    base = OpenBase(
        Decoder(config, weights, engine),
        ChatTokenizer.load(home / "models" / head.model),
        AdapterShelf(home, config, weights.content_hash, KEPT_ADAPTERS),
        room.without(decoded),
    )
    return base, engine
