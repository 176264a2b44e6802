"""A decoder's tensors: their names, their shapes, and which linears are one product.

Linears that share an input become one matrix, so that the engine is called 4 times a layer instead
of 7:

    qkv_proj [nq + 2 nkv, hidden]  = q rows, k rows, v rows
    gate_up_proj [2 ffn, hidden]   = gate rows, up rows

What isn't a matrix is a vector of its own: the norms' weights and, where the model has them, the
biases of q, k and v and the norms of a head's queries and keys.
"""

from collections.abc import Mapping

from trainer.models.config import DecoderConfig

PRODUCTS: Mapping[str, tuple[str, ...]] = {
    "self_attn.qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "self_attn.o_proj": ("o_proj",),
    "mlp.gate_up_proj": ("gate_proj", "up_proj"),
    "mlp.down_proj": ("down_proj",),
}
"""The frozen matrices of a layer, and the linears whose rows each holds, in order."""

MODULES: Mapping[str, str] = {
    linear: product.partition(".")[0] for product, linears in PRODUCTS.items() for linear in linears
}
"""The module, `self_attn` or `mlp`, of each linear of a layer."""

LINEARS = tuple(MODULES)
"""The linears of a layer, in the order of the computation."""

BIASED = ("q_proj", "k_proj", "v_proj")
"""The linears that add a bias where the config says `attention_bias`."""

HEAD_NORMS = ("q_norm", "k_norm")
"""The norms over a head's size that there are where the config says `qk_norm`."""

ROPE_VECTOR = "rope_inverse_frequencies"
"""The vector [head_dim / 2] of a weight file whose config says `rope_scaled`. Derived, no tensor of
the source."""


def linear_shape(config: DecoderConfig, linear: str) -> tuple[int, int]:
    """(out, in) features of one linear of a layer."""
    query, key_value = config.query_width, config.key_value_width
    hidden, ffn = config.hidden_size, config.intermediate_size
    return {
        "q_proj": (query, hidden),
        "k_proj": (key_value, hidden),
        "v_proj": (key_value, hidden),
        "o_proj": (hidden, query),
        "gate_proj": (ffn, hidden),
        "up_proj": (ffn, hidden),
        "down_proj": (hidden, ffn),
    }[linear]


def tensor_shapes(config: DecoderConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor of a decoder by name; matrices are [output, input]."""
    hidden = config.hidden_size
    shapes: dict[str, tuple[int, ...]] = {"embed_tokens": (config.vocab_size, hidden)}
    for layer in range(config.num_hidden_layers):
        for norm, module in (("input_layernorm", "self_attn"), ("post_attention_layernorm", "mlp")):
            shapes[f"layers.{layer}.{norm}"] = (hidden,)
            for linear in LINEARS:
                if MODULES[linear] == module:
                    shapes[f"layers.{layer}.{module}.{linear}"] = linear_shape(config, linear)
        for linear in BIASED if config.attention_bias else ():
            width = linear_shape(config, linear)[0]
            shapes[f"layers.{layer}.self_attn.{linear}.bias"] = (width,)
        for norm in HEAD_NORMS if config.qk_norm else ():
            shapes[f"layers.{layer}.self_attn.{norm}"] = (config.head_dim,)
    shapes["norm"] = (hidden,)
    if not config.tie_word_embeddings:
        shapes["lm_head"] = (config.vocab_size, hidden)
    return shapes


def matrices_multiplied_by(config: DecoderConfig) -> set[str]:
    """The frozen matrices whose products the model asks for: all but an embedding of its own."""
    head = "embed_tokens" if config.tie_word_embeddings else "lm_head"
    layers = range(config.num_hidden_layers)
    return {head, *(f"layers.{layer}.{product}" for layer in layers for product in PRODUCTS)}
