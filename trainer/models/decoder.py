"""The Llama decoder: frozen products on the engine, everything between them here in fp32.

A layer is four frozen products, since linears that share an input are one product:

    x ─ norm ─▶ qkv ─▶ rope, attention ─▶ o ─▶ + ─ norm ─▶ gate_up ─▶ silu(gate)·up ─▶ down ─▶ +
        [T,H]    [T,nq+2nkv]        [T,nq]  [T,H]    [T,2F]                   [T,F]     [T,H]

Tokens come packed: several examples in one sequence [T], with an attention mask that keeps them
apart (`trainer/packing.py`). Equal to `transformers`' LlamaForCausalLM on the same effective
weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from npu.engine import Engine
from npu.frozen_matrix import FrozenMatrix
from trainer.adapted_linear import adapted_linear
from trainer.frozen_linear import frozen_linear
from trainer.lora import LoraAdapter
from trainer.models.config import DecoderConfig
from trainer.models.layout import PRODUCTS, linear_shape
from trainer.models.rope import rope_tables, rotate
from trainer.packing import Packed
from trainer.recompute import recomputed

NOT_ON_ENGINE = (
    {"what": "embedding lookup", "why": "a row is copied, nothing is multiplied"},
    {"what": "RMSNorm weights", "why": "element-wise vectors, no matrix"},
    {"what": "attention scores and values", "why": "both factors are activations, none is frozen"},
    {"what": "lora_A and lora_B", "why": "trainable, so they stay on the CPU"},
)
"""What the model multiplies outside the engine, by name, with the reason."""


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Root mean square normalisation over the last axis, weighted (Zhang & Sennrich, 2019)."""
    return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps))


class Weights(Protocol):
    """What a decoder needs of `FrozenWeights`."""

    @property
    def matrices(self) -> Mapping[str, FrozenMatrix]:
        """Every matrix by name."""

    @property
    def vectors(self) -> Mapping[str, npt.NDArray[np.float32]]:
        """Every norm's weight by name."""


class Decoder:
    """One base model: its configuration, its frozen weights and the engine that multiplies them."""

    def __init__(self, config: DecoderConfig, weights: Weights, engine: Engine) -> None:
        """Bind the three; nothing is copied but the norm vectors."""
        self.config = config
        self.engine = engine
        self._embedding = weights.matrices["embed_tokens"]
        self._vectors = {
            name: torch.tensor(vector, dtype=torch.float32)
            for name, vector in weights.vectors.items()
        }
        self._head = "embed_tokens" if config.tie_word_embeddings else "lm_head"

    def hidden(
        self, packed: Packed, adapter: LoraAdapter | None = None, *, recompute: bool = False
    ) -> torch.Tensor:
        """Final normalised hidden states.

        Args:
            packed: the tokens, their positions and who may attend to whom; T tokens.
            adapter: LoRA applied un-merged, or None for the bare base model.
            recompute: keep only each layer's input and compute it again in the backward pass.

        Returns:
            fp32 [T, hidden_size].
        """
        config = self.config
        tables = rope_tables(packed.positions, config.head_dim, config.rope_theta)
        bias = torch.zeros(packed.mask.shape).masked_fill_(~packed.mask, -torch.inf)
        x = torch.from_numpy(self._embedding.rows(packed.ids.numpy()))
        for layer in range(config.num_hidden_layers):

            def block(x: torch.Tensor, layer: int = layer) -> torch.Tensor:
                return self._block(layer, x, tables, bias, adapter)

            if recompute and adapter is not None and torch.is_grad_enabled():
                x = recomputed(block, x, adapter.layer_parameters(layer))
            else:
                x = block(x)
        return rms_norm(x, self._vectors["norm"], config.rms_norm_eps)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Next-token logits [L, vocab_size] of the chosen rows of `hidden`, [L, hidden_size]."""
        return frozen_linear(hidden, self.engine, self._head)

    def _block(
        self,
        layer: int,
        x: torch.Tensor,
        tables: tuple[torch.Tensor, torch.Tensor],
        bias: torch.Tensor,
        adapter: LoraAdapter | None,
    ) -> torch.Tensor:
        prefix, eps = f"layers.{layer}.", self.config.rms_norm_eps
        normed = rms_norm(x, self._vectors[prefix + "input_layernorm"], eps)
        x = x + self._attention(layer, normed, tables, bias, adapter)
        normed = rms_norm(x, self._vectors[prefix + "post_attention_layernorm"], eps)
        gate, up = self._linear(layer, "mlp.gate_up_proj", normed, adapter)
        (down,) = self._linear(layer, "mlp.down_proj", F.silu(gate) * up, adapter)
        return x + down

    def _attention(
        self,
        layer: int,
        x: torch.Tensor,
        tables: tuple[torch.Tensor, torch.Tensor],
        bias: torch.Tensor,
        adapter: LoraAdapter | None,
    ) -> torch.Tensor:
        config = self.config
        tokens, repeats = len(x), config.num_attention_heads // config.num_key_value_heads
        q, k, v = self._linear(layer, "self_attn.qkv_proj", x, adapter)
        q = rotate(q.view(tokens, -1, config.head_dim), *tables).transpose(0, 1)
        k = rotate(k.view(tokens, -1, config.head_dim), *tables).transpose(0, 1)
        v = v.view(tokens, -1, config.head_dim).transpose(0, 1)
        k, v = k.repeat_interleave(repeats, 0), v.repeat_interleave(repeats, 0)
        attended = F.scaled_dot_product_attention(
            q[None], k[None], v[None], attn_mask=bias[None, None]
        )[0]
        attended = attended.transpose(0, 1).reshape(tokens, -1)
        (out,) = self._linear(layer, "self_attn.o_proj", attended, adapter)
        return out

    def _linear(
        self,
        layer: int,
        product: str,
        x: torch.Tensor,
        adapter: LoraAdapter | None,
    ) -> list[torch.Tensor]:
        """One frozen product, split into the outputs of its linears, each with its LoRA delta."""
        name, linears = f"layers.{layer}.{product}", PRODUCTS[product]
        lora = None if adapter is None else adapter.of_linears(layer, linears)
        if lora is None:
            y = frozen_linear(x, self.engine, name)
        else:
            y = adapted_linear(x, self.engine, name, lora)
        return list(y.split([linear_shape(self.config, linear)[0] for linear in linears], dim=1))
