"""The decoder: frozen products on the engine, everything between them here, without autograd.

    ids ─ embed ─▶ block 0 ─▶ … ─▶ block L-1, trimmed to the rows asked for ─▶ norm ─▶ head
                 [T,H]                                                     [R,H]     [R,V]

Tokens come packed: several examples in one sequence [T], with an attention mask that keeps them
apart (`trainer/packing.py`). Equal to `transformers`' models on the same effective weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from npu.engine import Engine
from npu.frozen_matrix import FrozenMatrix
from trainer.lora import LoraAdapter
from trainer.models.attention import attention_pieces
from trainer.models.block import Block, Products, Tokens
from trainer.models.config import DecoderConfig
from trainer.models.keep import Keep
from trainer.models.kv_cache import KeyValueCache
from trainer.models.rms_norm import rms_norm, rms_norm_gradient
from trainer.models.rope import RopeTables, inverse_frequencies, rope_tables
from trainer.models.side_by_side import SideBySide
from trainer.packing import Packed

NOT_ON_ENGINE = (
    {"what": "embedding lookup", "why": "a row is copied, nothing is multiplied"},
    {"what": "RMSNorm weights and biases", "why": "element-wise vectors, no matrix"},
    {"what": "attention scores and values", "why": "both factors are activations, none is frozen"},
    {"what": "lora_A and lora_B", "why": "trainable, so they stay on the CPU"},
)
"""What the model multiplies outside the engine, by name, with the reason."""


class Weights(Protocol):
    """What a decoder needs of `FrozenWeights`."""

    @property
    def matrices(self) -> Mapping[str, FrozenMatrix]:
        """Every matrix by name."""

    @property
    def vectors(self) -> Mapping[str, npt.NDArray[np.float32]]:
        """Every norm's weight, bias and other vector by name."""


@dataclass(frozen=True)
class Pass:
    """A forward pass that a backward pass can follow."""

    hidden: torch.Tensor
    """Final normalised hidden states of the rows asked for, [R, hidden_size]."""
    last: torch.Tensor
    """The same before the last norm."""
    blocks: list[tuple[int, Tokens, torch.Tensor, Products | None]]
    """Of each adapted layer, its number, its tokens, its input, and what its products gave."""


class Decoder:
    """One base model: its configuration, its frozen weights and the engine that multiplies them."""

    def __init__(
        self,
        config: DecoderConfig,
        weights: Weights,
        engine: Engine,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Bind the three; nothing is copied but the vectors. `dtype` is that of all arithmetic."""
        self.config = config
        self.engine = engine
        self._dtype = dtype
        self._embedding = weights.matrices["embed_tokens"]
        vectors = {
            name: torch.tensor(vector, dtype=dtype) for name, vector in weights.vectors.items()
        }
        self._frequencies = inverse_frequencies(config, weights.vectors)
        self._norm = vectors["norm"]
        threads = SideBySide(engine.options.threads)
        self._blocks = [
            Block(layer, config, vectors, engine, threads)
            for layer in range(config.num_hidden_layers)
        ]
        self._head = "embed_tokens" if config.tie_word_embeddings else "lm_head"

    @torch.no_grad()
    def hidden(
        self,
        packed: Packed,
        adapter: LoraAdapter | None = None,
        rows: torch.Tensor | None = None,
        cache: KeyValueCache | None = None,
    ) -> torch.Tensor:
        """Final normalised hidden states.

        Args:
            packed: the tokens, their positions and who may attend to whom; T tokens.
            adapter: LoRA applied un-merged, or None for the bare base model.
            rows: int64 [R], distinct: the tokens whose states are wanted; None means all.
            cache: of the tokens before these, which come out of its `packed`; takes them in.

        Returns:
            [R, hidden_size].
        """
        x, whole = self._embedded(packed), replace(self._whole(packed), cache=cache)
        for block in self._blocks[:-1]:
            x, _ = block.forward(x, whole, adapter)
        x, _ = self._blocks[-1].forward(x, self._trimmed(packed, whole, rows), adapter)
        return rms_norm(x, self._norm, self.config.rms_norm_eps)

    @torch.no_grad()
    def below(self, packed: Packed, layers: int) -> torch.Tensor:
        """What the bare base model's first `layers` layers make of the tokens: [T, hidden_size]."""
        return self._below(packed, self._whole(packed), layers)

    @torch.no_grad()
    def forward(
        self,
        packed: Packed,
        adapter: LoraAdapter,
        rows: torch.Tensor,
        *,
        recompute: bool,
        below: torch.Tensor | None = None,
        room: Keep | None = None,
    ) -> Pass:
        """A forward pass for `backward`.

        Args:
            packed: the tokens, their positions and who may attend to whom; T tokens.
            adapter: LoRA applied un-merged.
            rows: int64 [R], distinct: the tokens whose states are wanted.
            recompute: keep only each layer's input, and compute the rest again in the backward
                pass; otherwise keep what its products gave.
            below: what the layers below the adapted ones make of the tokens, [T, hidden_size];
                None to compute it.
            room: where to keep it all; a pass ends when another begins in the same room.
        """
        whole = self._whole(packed)
        room = room or Keep(0)
        room.begin()
        x = room.keep(self._below(packed, whole, adapter.layers.start) if below is None else below)
        trimmed = self._trimmed(packed, whole, rows)
        blocks: list[tuple[int, Tokens, torch.Tensor, Products | None]] = []
        for layer in adapter.layers:
            tokens = trimmed if layer == len(self._blocks) - 1 else whole
            if recompute:
                out, made = self._blocks[layer].forward(x, tokens, adapter)[0], None
            else:
                out, made = self._blocks[layer].forward(x, tokens, adapter, room)
            blocks.append((layer, tokens, x, made))
            x = room.keep(out)
        return Pass(rms_norm(x, self._norm, self.config.rms_norm_eps), x, blocks)

    @torch.no_grad()
    def backward(self, done: Pass, d_hidden: torch.Tensor, adapter: LoraAdapter) -> None:
        """Add the adapter's gradients for the gradient `d_hidden` of `done.hidden`.

        What the pass keeps of each layer is let go of as soon as it has been used.
        """
        dx = rms_norm_gradient(d_hidden, done.last, self._norm, self.config.rms_norm_eps)
        while done.blocks:
            layer, tokens, x, made = done.blocks.pop()
            below = self._blocks[layer].backward(
                dx, x, made, tokens, adapter, needs_dx=layer > adapter.layers.start
            )
            if below is None:
                break
            dx = below

    @torch.no_grad()
    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Next-token logits [R, vocab_size] of states [R, hidden_size]."""
        return self.engine.begin("forward", self._head, hidden).result()

    @torch.no_grad()
    def logits_gradient(self, d_logits: torch.Tensor) -> torch.Tensor:
        """The gradient [R, hidden_size] of the states for the gradient of their logits."""
        return self.engine.begin("input_gradient", self._head, d_logits).result()

    def _below(self, packed: Packed, whole: Tokens, layers: int) -> torch.Tensor:
        x = self._embedded(packed)
        for block in self._blocks[:layers]:
            x, _ = block.forward(x, whole, None)
        return x

    def _embedded(self, packed: Packed) -> torch.Tensor:
        return torch.from_numpy(self._embedding.rows(packed.ids.numpy())).to(self._dtype)

    def _whole(self, packed: Packed) -> Tokens:
        """For a layer that gives all tokens on."""
        tables = rope_tables(packed.positions, self._frequencies, self._dtype)
        pieces = attention_pieces(packed.mask, self._dtype)
        return Tokens(tables, self._scaled(tables), pieces, None)

    def _trimmed(self, packed: Packed, whole: Tokens, rows: torch.Tensor | None) -> Tokens:
        """For the last layer, which gives on what is asked for."""
        if rows is None:
            return whole
        pieces = attention_pieces(packed.mask[rows], self._dtype)
        return Tokens(whole.tables, self._scaled(whole.tables[rows]), pieces, rows, whole.cache)

    def _scaled(self, tables: RopeTables) -> RopeTables:
        """For queries, which the attention wants times 1/√head_dim."""
        return tables.times(self.config.head_dim**-0.5)
