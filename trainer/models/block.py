"""One layer of the decoder, forwards and backwards, written out by hand.

    x ─ norm ─▶ qkv ─▶ rope ─▶ attention ─▶ o ─▶ + ─▶ norm ─▶ gate_up ─▶ silu·up ─▶ down ─▶ +
    [T,H]     [T,nq+2nkv]       [R,nq]    [R,H] [R,H]         [R,2F]      [R,F]    [R,H] [R,H]

T tokens come in. R of them go on after the attention: all, or in the last layer only those whose
outputs anybody asks for. Of a forward pass the backward pass needs x alone, and computes the rest
again but for the last product, or what the products gave; norms, rotations, attention weights and
the gated unit are cheaper to compute again than to keep.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from npu.engine import Engine
from npu.ledger import Product
from trainer.adapted_linear import adapted_backward, adapted_forward, adapter_inputs
from trainer.lora import LoraAdapter
from trainer.models.attention import AttentionPiece, attention, attention_gradient
from trainer.models.config import DecoderConfig
from trainer.models.keep import Keep
from trainer.models.kv_cache import KeyValueCache
from trainer.models.layout import PRODUCTS
from trainer.models.rms_norm import rms_norm, rms_norm_gradient
from trainer.models.rope import RopeTables, rotate, rotate_gradient
from trainer.models.side_by_side import SideBySide
from trainer.models.swiglu import swiglu, swiglu_gradient

_QKV, _O, _GATE_UP, _DOWN = PRODUCTS


@dataclass(frozen=True)
class Tokens:
    """What a block has to know of its tokens."""

    tables: RopeTables
    """Of all T."""
    query_tables: RopeTables
    """Of the R that go on; they also scale the queries for the attention."""
    pieces: Sequence[AttentionPiece]
    """Who sees whom; the queries are R tokens, the keys all T."""
    kept: torch.Tensor | None
    """int64 [R], the tokens that go on after the attention; None means all."""
    cache: KeyValueCache | None = None
    """Holds keys and values of earlier tokens, which the queries also see, and takes in these."""


@dataclass(frozen=True)
class Products:
    """What a block's products gave, and what the adapters made of their inputs (`thin`)."""

    qkv: torch.Tensor
    attended: torch.Tensor
    middle: torch.Tensor
    """x and what the attention added to it."""
    gate_up: torch.Tensor
    thin: dict[str, torch.Tensor | None]


class Block:
    """One layer on its engine."""

    def __init__(
        self,
        layer: int,
        config: DecoderConfig,
        vectors: Mapping[str, torch.Tensor],
        engine: Engine,
        threads: SideBySide,
    ) -> None:
        """Bind the layer's vectors; its matrices are the engine's."""
        self._layer, self._config, self._engine = layer, config, engine
        self._threads = threads
        prefix = f"layers.{layer}."
        self._input_norm = vectors[prefix + "input_layernorm"]
        self._middle_norm = vectors[prefix + "post_attention_layernorm"]
        biases = [f"{prefix}self_attn.{linear}.bias" for linear in PRODUCTS[_QKV]]
        self._bias = torch.cat([vectors[name] for name in biases]) if biases[0] in vectors else None
        self._q_norm = vectors.get(prefix + "self_attn.q_norm")
        self._k_norm = vectors.get(prefix + "self_attn.k_norm")

    def forward(
        self,
        x: torch.Tensor,
        tokens: Tokens,
        adapter: LoraAdapter | None,
        room: Keep | None = None,
    ) -> tuple[torch.Tensor, Products]:
        """The outputs [R, H] of x [T, H], and what `backward` can go on from, kept in `room`."""
        room = room or Keep(0)
        made = self._products("forward", x, tokens, adapter, room)
        hidden = swiglu(made.gate_up)
        out, made.thin[_DOWN] = self._linear("forward", _DOWN, hidden, adapter, room)
        return out.add_(made.middle), made

    def backward(
        self,
        d_out: torch.Tensor,
        x: torch.Tensor,
        made: Products | None,
        tokens: Tokens,
        adapter: LoraAdapter,
        *,
        needs_dx: bool,
    ) -> torch.Tensor | None:
        """Add the gradients of this layer's adapters to the adapter's.

        Args:
            d_out: the gradient of the outputs [R, H].
            x: as given to `forward`.
            made: as returned by it; None to compute it again.
            tokens: as given to `forward`.
            adapter: as given to `forward`, unchanged since.
            needs_dx: whether anything below this layer can learn.

        Returns:
            The gradient of x, or None if it isn't needed.
        """
        eps = self._config.rms_norm_eps
        if made is None:
            made = self._products("recompute", x, tokens, adapter, Keep(0))
        hidden = swiglu(made.gate_up)
        if _DOWN not in made.thin:
            down = adapter.of_product(self._layer, _DOWN)
            made.thin[_DOWN] = None if down is None else adapter_inputs(hidden, down)
        d_hidden = self._linear_gradient(_DOWN, d_out, hidden, made, adapter, needs_dx)
        del hidden
        if d_hidden is None:
            return None
        d_gate_up = swiglu_gradient(d_hidden, made.gate_up)
        del d_hidden
        normed = rms_norm(made.middle, self._middle_norm, eps)
        d_normed = self._linear_gradient(_GATE_UP, d_gate_up, normed, made, adapter, needs_dx)
        del d_gate_up, normed
        if d_normed is None:
            return None
        d_middle = rms_norm_gradient(d_normed, made.middle, self._middle_norm, eps).add_(d_out)
        d_attended = self._linear_gradient(_O, d_middle, made.attended, made, adapter, needs_dx)
        if d_attended is None:
            return None
        d_qkv = self._attention_gradient(d_attended, made, tokens)
        del d_attended
        normed = rms_norm(x, self._input_norm, eps)
        d_normed = self._linear_gradient(_QKV, d_qkv, normed, made, adapter, needs_dx)
        if d_normed is None:
            return None
        dx = rms_norm_gradient(d_normed, x, self._input_norm, eps)
        return dx.add_(d_middle) if tokens.kept is None else dx.index_add_(0, tokens.kept, d_middle)

    def _products(
        self,
        product: Product,
        x: torch.Tensor,
        tokens: Tokens,
        adapter: LoraAdapter | None,
        room: Keep,
    ) -> Products:
        """All of the forward pass but the last product."""
        eps = self._config.rms_norm_eps
        thin: dict[str, torch.Tensor | None] = {}
        normed = rms_norm(x, self._input_norm, eps)
        qkv, thin[_QKV] = self._linear(product, _QKV, normed, adapter, room)
        if self._bias is not None:
            qkv.add_(self._bias)
        qkv = room.keep(qkv)
        q, k, v = self._heads(qkv, tokens)
        if tokens.cache is not None:
            k, v = tokens.cache.extend(self._layer, k, v)
        attended = room.keep(attention(q, k, v, tokens.pieces, self._threads))
        middle, thin[_O] = self._linear(product, _O, attended, adapter, room)
        middle = room.keep(middle.add_(x if tokens.kept is None else x[tokens.kept]))
        normed = rms_norm(middle, self._middle_norm, eps)
        gate_up, thin[_GATE_UP] = self._linear(product, _GATE_UP, normed, adapter, room)
        return Products(qkv, attended, middle, room.keep(gate_up), thin)

    def _heads(
        self, qkv: torch.Tensor, tokens: Tokens
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries, scaled for the attention, keys and values: [tokens, heads, head_dim] each."""
        q, k, v = self._split(qkv, tokens)
        if self._q_norm is not None and self._k_norm is not None:
            q = rms_norm(q, self._q_norm, self._config.rms_norm_eps)
            k = rms_norm(k, self._k_norm, self._config.rms_norm_eps)
        return rotate(q, tokens.query_tables), rotate(k, tokens.tables), v

    def _attention_gradient(
        self, d_attended: torch.Tensor, made: Products, tokens: Tokens
    ) -> torch.Tensor:
        """The gradient of the product's outputs qkv [T, nq + 2 nkv]."""
        eps = self._config.rms_norm_eps
        dq, dk, dv = attention_gradient(
            d_attended,
            made.attended,
            *self._heads(made.qkv, tokens),
            tokens.pieces,
            self._threads,
        )
        dq, dk = rotate_gradient(dq, tokens.query_tables), rotate_gradient(dk, tokens.tables)
        if self._q_norm is not None and self._k_norm is not None:
            q, k, _ = self._split(made.qkv, tokens)
            dq = rms_norm_gradient(dq, q, self._q_norm, eps)
            dk = rms_norm_gradient(dk, k, self._k_norm, eps)
        if tokens.kept is not None:
            dq = dq.new_zeros(len(dk), *dq.shape[1:]).index_copy_(0, tokens.kept, dq)
        return torch.cat([dq.flatten(1), dk.flatten(1), dv.flatten(1)], dim=1)

    def _split(
        self, qkv: torch.Tensor, tokens: Tokens
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The product's outputs by heads; queries only of the tokens that go on."""
        widths = [self._config.query_width, *[self._config.key_value_width] * 2]
        q, k, v = (
            part.unflatten(1, (-1, self._config.head_dim)) for part in qkv.split(widths, dim=1)
        )
        return (q if tokens.kept is None else q[tokens.kept]), k, v

    def _linear(
        self,
        product: Product,
        name: str,
        x: torch.Tensor,
        adapter: LoraAdapter | None,
        room: Keep,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        lora = None if adapter is None else adapter.of_product(self._layer, name)
        y, thin = adapted_forward(self._engine, product, f"layers.{self._layer}.{name}", x, lora)
        return y, None if thin is None else room.keep(thin)

    def _linear_gradient(
        self,
        name: str,
        dy: torch.Tensor,
        x: torch.Tensor,
        made: Products,
        adapter: LoraAdapter,
        needs_dx: bool,
    ) -> torch.Tensor | None:
        """The gradient of x, if anything before it, here or below, can learn."""
        before = list(PRODUCTS)[: list(PRODUCTS).index(name)]
        return adapted_backward(
            self._engine,
            f"layers.{self._layer}.{name}",
            dy,
            x,
            made.thin[name],
            adapter.of_product(self._layer, name),
            needs_dx=needs_dx
            or any(adapter.of_product(self._layer, other) is not None for other in before),
        )
