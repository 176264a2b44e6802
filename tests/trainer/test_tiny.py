import hashlib
from pathlib import Path

import pytest

from trainer.models.config import UnsupportedModelError
from trainer.models.tiny import byte_tokenizer, main, write_tiny_model


def digest(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.iterdir()}


def test_equal_arguments_give_equal_bytes(tmp_path: Path, tiny_folder: Path) -> None:
    main([str(tmp_path / "again")])
    main([str(tmp_path / "other"), "--seed", "1"])
    assert digest(tmp_path / "again") == digest(tiny_folder)
    assert digest(tmp_path / "other") != digest(tiny_folder)


def test_every_byte_has_a_token() -> None:
    tokenizer = byte_tokenizer()
    text = "".join(map(chr, range(0x250))) + "日本語 🎉 <|im_end|>"
    ids = tokenizer.encode(text).ids
    assert ids[-1] == 2
    assert len(ids) == len(text.encode()) - len("<|im_end|>") + 1
    assert tokenizer.decode(ids, skip_special_tokens=False) == text


def test_sizes_are_options(tmp_path: Path) -> None:
    main(
        f"{tmp_path} --layers 1 --hidden 32 --ffn 48 --heads 8 --key-value-heads 4 --untied".split()
    )
    config = write_tiny_model(
        tmp_path, layers=1, hidden=32, ffn=48, heads=8, key_value_heads=4, tied=False
    )
    assert (config.head_dim, config.tie_word_embeddings) == (4, False)
    with pytest.raises(UnsupportedModelError, match="no multiple"):
        write_tiny_model(tmp_path, hidden=30, heads=4)


@pytest.mark.slow
@pytest.mark.parametrize("layers", [2, 6])
def test_transformers_computes_it_with_gradients_far_from_zero(layers: int, tmp_path: Path) -> None:
    """No gradient is degenerate: each norm within a factor 1000 of its weight's norm."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    write_tiny_model(tmp_path, layers=layers)
    model = transformers.AutoModelForCausalLM.from_pretrained(str(tmp_path))
    ids = torch.tensor([byte_tokenizer().encode("<|im_start|>some text, 日本").ids])
    loss = model(ids, labels=ids).loss
    loss.backward()
    assert 1 < loss.item() < 20
    for name, weight in model.named_parameters():
        ratio = (weight.grad.norm() / weight.detach().norm()).item()
        assert 1e-3 < ratio < 1e3, name
