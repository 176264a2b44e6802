"""Which part of an adapter's data a text belongs to: a keyed hash decides, once.

The hash is HMAC-SHA256 under the adapter's own key, so nobody who sees it can test guesses of the
text, and two adapters split the same text independently.
"""

import hmac
import unicodedata

from storage.tables import Split

HOLDOUT_PERCENT = 20


def normalise(text: str) -> str:
    """The text without the differences that don't make another example: case, width, spacing."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(unicodedata.normalize("NFKC", folded).split())


def text_hash(key: bytes, text: str) -> bytes:
    """32 bytes that are equal for equal normalised texts of one adapter."""
    return hmac.digest(key, normalise(text).encode(), "sha256")


def split_of(digest: bytes) -> Split:
    """The split that `text_hash`'s digest falls into: `HOLDOUT_PERCENT` of them are held out."""
    return "holdout" if int.from_bytes(digest, "big") % 100 < HOLDOUT_PERCENT else "train"
