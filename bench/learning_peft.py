"""The same training by PEFT and transformers: same rows, batches, steps, schedule and ruler.

The model holds exactly the effective weights of ours in fp32, and the adapter begins as PEFT makes
it. Batches are padded; logits are computed at answer tokens only, which changes no gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from bench.learning_loop import take_steps
from bench.learning_rows import LabelledText
from bench.learning_student import AdapterShape, Student, Trained
from npu.weights import FrozenWeights
from trainer.dataset import TokenExample
from trainer.lora import TARGETS
from trainer.spec import TrainingSettings


def peft_installed() -> bool:
    """Whether the extra `test` is there."""
    return find_spec("peft") is not None and find_spec("transformers") is not None


def peft_train(
    student: Student,
    model_dir: Path,
    rows: Sequence[LabelledText],
    shape: AdapterShape,
    settings: TrainingSettings,
) -> Trained:
    """Train on all layers; the result is one of our adapters with PEFT's values."""
    from peft import LoraConfig, get_peft_model, get_peft_model_state_dict

    from tests.trainer.oracle import oracle_of

    torch.manual_seed(settings.seed)
    weights = FrozenWeights.open(model_dir / "weights.lorad")
    config = LoraConfig(
        r=shape.rank, lora_alpha=int(shape.alpha), target_modules=list(TARGETS), lora_dropout=0.0
    )
    base = oracle_of(student.decoder.config, weights, torch.float32)
    model = get_peft_model(base, config)  # its layers take the place of those of `base`
    model.train()
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    adamw = torch.optim.AdamW(trainable, lr=0.0, weight_decay=settings.weight_decay)

    def step(batch: list[TokenExample], rate: float) -> tuple[float, int]:
        inputs, targets = _padded(batch, student.tokenizer.end_token_id)
        hidden = base.model(**inputs).last_hidden_state[:, :-1]
        answered = targets >= 0
        logits = base.lm_head(hidden[answered])
        loss = F.cross_entropy(logits, targets[answered])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trainable, settings.max_grad_norm)
        adamw.param_groups[0]["lr"] = rate
        adamw.step()
        adamw.zero_grad()
        return loss.item(), int(inputs["input_ids"].numel())

    peak = settings.peak_learning_rate(settings.total_steps(len(rows)))
    cost = take_steps(student.examples(rows), settings, peak, step)
    found = {
        key: value.detach().numpy().astype(np.float32)
        for key, value in get_peft_model_state_dict(model).items()
    }
    return Trained(student.fresh(shape, settings.seed, found), *cost)


def _padded(
    batch: Sequence[TokenExample], padding: int
) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Inputs [B, T], and at each place but the last the answer token that follows, or -100."""
    longest = max(len(example.prompt) + len(example.answer) for example in batch)
    ids = torch.full((len(batch), longest), padding)
    mask = torch.zeros(len(batch), longest, dtype=torch.int64)
    targets = torch.full((len(batch), longest - 1), -100)
    for row, example in enumerate(batch):
        end = len(example.prompt) + len(example.answer)
        ids[row, :end] = torch.tensor([*example.prompt, *example.answer])
        mask[row, :end] = 1
        targets[row, len(example.prompt) - 1 : end - 1] = torch.tensor(example.answer)
    return {"input_ids": ids, "attention_mask": mask}, targets
