"""What an earlier checkpoint says of its examples' texts: a keyed digest of each.

Today's say when each text was last changed instead, so that nothing derived from a text lies in
a file. A run that was under way over the update is compared once more by its digests, and its
checkpoints are then replaced.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

from storage.adapters import data_key
from storage.database import Database
from storage.examples import ExampleText
from trainer.dataset import read_texts


def corrected_since(database: Database, adapter_id: int, digests: Mapping[int, str]) -> list[int]:
    """The ids of those whose text is there and another one than was digested."""
    texts = read_texts(database, list(digests))
    with database.read() as session:
        key = data_key(session, adapter_id)
    return [one for one, text in texts.items() if _digest(key, text) != digests[one]]


def _digest(key: bytes, text: ExampleText) -> str:
    content = f"{len(text.input)}:{text.input}{text.label}".encode()
    return hmac.new(key, content, hashlib.sha256).hexdigest()[:32]
