"""Each hand-written gradient against autograd's of the plain formula, in float64."""

import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.loss import cross_entropy_to_gradient
from trainer.models.attention import attention, attention_gradient, attention_pieces
from trainer.models.rms_norm import rms_norm, rms_norm_gradient
from trainer.models.rope import RopeTables, rotate, rotate_gradient
from trainer.models.side_by_side import SideBySide
from trainer.models.swiglu import swiglu, swiglu_gradient
from trainer.packing import SegmentTree

TOLERANCE = {"rtol": 1e-11, "atol": 1e-12}


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def test_rms_norm() -> None:
    x, weight, dn = draw(5, 3, 7).requires_grad_(), draw(7, seed=1), draw(5, 3, 7, seed=2)
    expected = F.rms_norm(x, (7,), weight, eps=1e-2)
    (wanted,) = torch.autograd.grad(expected, [x], dn)
    torch.testing.assert_close(rms_norm(x.detach(), weight, 1e-2), expected.detach(), **TOLERANCE)
    found = rms_norm_gradient(dn, x.detach(), weight, 1e-2)
    torch.testing.assert_close(found, wanted, **TOLERANCE)


def test_swiglu() -> None:
    gate_up, dy = draw(5, 14).requires_grad_(), draw(5, 7, seed=2)
    expected = F.silu(gate_up[:, :7]) * gate_up[:, 7:]
    (wanted,) = torch.autograd.grad(expected, [gate_up], dy)
    torch.testing.assert_close(swiglu(gate_up.detach()), expected.detach(), **TOLERANCE)
    torch.testing.assert_close(swiglu_gradient(dy, gate_up.detach()), wanted, **TOLERANCE)


def test_rope() -> None:
    x, dy, angles = draw(5, 3, 8).requires_grad_(), draw(5, 3, 8, seed=2), draw(5, 1, 4, seed=3)
    tables = RopeTables(angles.cos(), angles.sin()).times(0.3)
    twice = torch.cat((angles, angles), dim=-1)
    turned = torch.cat((-x[..., 4:], x[..., :4]), dim=-1)
    expected = 0.3 * (x * twice.cos() + turned * twice.sin())
    (wanted,) = torch.autograd.grad(expected, [x], dy)
    torch.testing.assert_close(rotate(x.detach(), tables), expected.detach(), **TOLERANCE)
    torch.testing.assert_close(rotate_gradient(dy, tables), wanted, **TOLERANCE)


def tree_of(lengths: list[tuple[int, int]]) -> SegmentTree:
    """Segments of some lengths; the parent of each is an earlier one, or none."""
    tree = SegmentTree()
    for number, (length, parent) in enumerate(lengths):
        tree.add([1] * length, None if parent >= number else parent)
    return tree


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 90), st.integers(0, 6)), min_size=1, max_size=5),
    st.data(),
)
def test_attention(lengths: list[tuple[int, int]], data: st.DataObject) -> None:
    """Trees of segments, longer and shorter than a piece; all queries, and some."""
    mask = tree_of(lengths).pack().mask
    tokens, heads, shared, width = len(mask), 4, 2, 3
    if data.draw(st.booleans(), label="some"):
        rows = data.draw(st.lists(st.integers(0, tokens - 1), min_size=1, unique=True))
    else:
        rows = list(range(tokens))
    mask = mask[rows]
    threads = SideBySide(data.draw(st.integers(1, 3), label="threads"))
    q, do = draw(len(rows), heads, width).requires_grad_(), draw(len(rows), heads * width, seed=4)
    k = draw(tokens, shared, width, seed=1).requires_grad_()
    v = draw(tokens, shared, width, seed=2).requires_grad_()
    expected = F.scaled_dot_product_attention(
        q.transpose(0, 1)[None],
        k.repeat_interleave(heads // shared, 1).transpose(0, 1)[None],
        v.repeat_interleave(heads // shared, 1).transpose(0, 1)[None],
        attn_mask=mask,
        scale=1.0,
    )[0]
    expected = expected.transpose(0, 1).flatten(1)
    wanted = torch.autograd.grad(expected, [q, k, v], do)
    with torch.no_grad():
        pieces = attention_pieces(mask, torch.float64)
        out = attention(q, k, v, pieces, threads)
        found = attention_gradient(do, out, q, k, v, pieces, threads)
    torch.testing.assert_close(out, expected.detach(), **TOLERANCE)
    for mine, its in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, its, **TOLERANCE)


def test_attention_leaves_out_what_nobody_sees() -> None:
    tree = SegmentTree()
    root = tree.add([1] * 20)
    for _ in range(4):
        tree.add([1] * 50, root)
    tree.add([1] * 70)
    pieces = attention_pieces(tree.pack().mask)
    assert sum(piece.queries.stop - piece.queries.start for piece in pieces) == 290
    seen = [
        len(piece.keys)
        if isinstance(piece.keys, torch.Tensor)
        else piece.keys.stop - piece.keys.start
        for piece in pieces
    ]
    # Queries 64 at a time, with the root and the branches that they lie in; the last root alone.
    assert seen == [20 + 44, 20 + 50 + 50 + 8, 20 + 50 + 22, 20 + 50 + 36, 70]


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 10)), min_size=1, max_size=12),
    st.floats(0.1, 3.0),
)
def test_cross_entropy(pairs: list[tuple[int, int]], weight: float) -> None:
    """Rows with one target, with several, with the same one twice, and with none."""
    rows, targets = (torch.tensor(column) for column in zip(*pairs, strict=True))
    logits = (20 * draw(5, 11)).requires_grad_()
    expected = F.cross_entropy(logits[rows], targets, reduction="sum")
    (wanted,) = torch.autograd.grad(weight * expected, [logits])
    found = logits.detach().clone()
    total = cross_entropy_to_gradient(found, rows, targets, weight)
    torch.testing.assert_close(
        torch.tensor(total, dtype=torch.float64), expected.detach(), rtol=1e-11, atol=0
    )
    torch.testing.assert_close(found, wanted, **TOLERANCE)
