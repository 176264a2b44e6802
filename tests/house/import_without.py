"""Imports modules while others are out of reach, then tokenizes; the lists come on stdin."""

import importlib
import json
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec

orders = json.load(sys.stdin)
forbidden = set(orders["forbidden"])


class OutOfReach(MetaPathFinder):
    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name.partition(".")[0] in forbidden:
            raise ModuleNotFoundError(f"No module named {name!r} on a phone", name=name)
        return None


sys.path.insert(0, ".")
sys.meta_path.insert(0, OutOfReach())
for module in orders["modules"]:
    importlib.import_module(module)

from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: E402  after the finder

tokenizer = Tokenizer(models.WordLevel({"?": 0, "phone": 1, "a": 2}, unk_token="?"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
print("lorad", Tokenizer.from_str(tokenizer.to_str()).encode("a phone").ids)
