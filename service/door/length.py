"""The length check at the door: how many tokens an example has, before it is accepted."""

import hashlib
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from service.models import Manifest, ModelError, ModelFolder

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MARGIN = 8
"""Tokens kept free: merges across the border of template and text are not counted here."""

_TOKENIZERS_KEPT = 2


@dataclass(frozen=True)
class Measure:
    """The tokens of one example, template and margin included in ``fixed``."""

    fixed: int
    input: int
    label: int
    exact: bool
    """Whether the label's tokens spell it exactly, as an answer must."""

    @property
    def least(self) -> int:
        """Tokens that no cutting of the input saves."""
        return self.fixed + self.label

    @property
    def total(self) -> int:
        """Tokens of the whole example."""
        return self.least + self.input


class LengthCheck:
    """Counts tokens with the base models' own tokenizers, which it loads when first needed."""

    def __init__(self, models: ModelFolder) -> None:
        """Use the tokenizers of these models."""
        self._models = models
        self._kept: OrderedDict[str, Tokenizer] = OrderedDict()
        self._lock = threading.Lock()

    def measure(self, model: Manifest, text: str, label: str) -> Measure:
        """Count an example's tokens.

        Raises:
            service.models.ModelError: the model's tokenizer can't be loaded.
        """
        tokenizer = self._tokenizer(model)
        label_ids = tokenizer.encode(label, add_special_tokens=False).ids
        return Measure(
            fixed=model.template_tokens + MARGIN,
            input=len(tokenizer.encode(text, add_special_tokens=False).ids),
            label=len(label_ids),
            exact=tokenizer.decode(label_ids, skip_special_tokens=False) == label,
        )

    def _tokenizer(self, model: Manifest) -> "Tokenizer":
        with self._lock:
            key = model.tokenizer.sha256
            if key not in self._kept:
                self._kept[key] = self._load(model)
                while len(self._kept) > _TOKENIZERS_KEPT:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(key)
            return self._kept[key]

    def _load(self, model: Manifest) -> "Tokenizer":
        from tokenizers import Tokenizer

        path = self._models.tokenizer_path(model)
        try:
            data = path.read_bytes()
        except OSError as error:
            raise ModelError(
                f"the base model '{model.name}' is not usable: {path.name}: {error.strerror}"
            ) from None
        found = hashlib.sha256(data).hexdigest()
        if found != model.tokenizer.sha256:
            raise ModelError(
                f"the base model '{model.name}' is not usable: {path.name} has SHA-256 {found}, "
                f"its manifest says {model.tokenizer.sha256}"
            )
        try:
            tokenizer = Tokenizer.from_str(data.decode("utf-8"))
        except Exception as error:  # tokenizers raises bare Exception
            raise ModelError(
                f"the base model '{model.name}' is not usable: {path.name}: {error}"
            ) from None
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True  # control tokens in a person's text are plain text
        return tokenizer
