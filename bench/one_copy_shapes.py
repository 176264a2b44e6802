"""The weights that `bench.one_copy` measures: real models' shapes, each model cut to a few layers.

Sizes are those of the models' published config.json. What shares an input is one product (q, k and
v; gate and up), as in `trainer.models.layout`. The values are random.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SMALLEST = 1280 * 1024
"""Weights of the smallest case: what a context costs whatever it holds hides smaller ones."""


@dataclass(frozen=True)
class Shape:
    """`layers` weights [N, K] of one kind."""

    name: str
    N: int
    K: int
    layers: int = 1

    @property
    def parameters(self) -> int:
        """Weights in all layers together."""
        return self.N * self.K * self.layers


@dataclass(frozen=True)
class RealModel:
    """A model's sizes and how much of it is measured."""

    name: str
    hidden: int
    ffn: int
    heads: int
    key_value_heads: int
    vocabulary: int
    layers: int
    cut_layers: int
    cut_head: int
    """Rows of the output head that are measured."""

    def layer(self) -> list[Shape]:
        """The four products of one layer."""
        head_size = self.hidden // self.heads
        keys_values = 2 * self.key_value_heads * head_size
        return [
            Shape("qkv_proj", self.hidden + keys_values, self.hidden),
            Shape("o_proj", self.hidden, self.hidden),
            Shape("gate_up_proj", 2 * self.ffn, self.hidden),
            Shape("down_proj", self.hidden, self.ffn),
        ]

    def cut(self) -> list[Shape]:
        """`cut_layers` layers and `cut_head` rows of the head: one context holds them all."""
        layers = [Shape(s.name, s.N, s.K, self.cut_layers) for s in self.layer()]
        return [*layers, Shape("head", self.cut_head, self.hidden)]

    def shapes(self) -> list[Shape]:
        """Every shape for a context of its own: one layer, or as many as make up SMALLEST."""
        single = [*self.layer(), Shape("head", self.cut_head, self.hidden)]
        return [Shape(s.name, s.N, s.K, -(-SMALLEST // (s.N * s.K))) for s in single]

    def describe(self) -> str:
        """What of the model is measured."""
        return (
            f"{self.cut_layers} of {self.layers} layers and {self.cut_head} of "
            f"{self.vocabulary} rows of the head"
        )


MODELS = (
    RealModel("SmolLM2-135M", 576, 1536, 9, 3, 49_152, 30, cut_layers=4, cut_head=8192),
    RealModel("Qwen2.5-0.5B", 896, 4864, 14, 2, 151_936, 24, cut_layers=2, cut_head=4096),
    RealModel("Llama-3.2-1B", 2048, 8192, 32, 8, 128_256, 16, cut_layers=1, cut_head=2048),
)

QUICK: dict[str, Sequence[str]] = {
    "SmolLM2-135M": ("gate_up_proj",),
    "Qwen2.5-0.5B": ("down_proj",),
    "Llama-3.2-1B": ("o_proj",),
}
"""The one shape per model of `--quick`."""
