"""What an adapter has to beat: three predictors that need no language model.

The majority answers the most frequent training label, the recency prior the label most frequent of
late, and the word model looks at the words alone. A bare base model is a weak rival beside them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from importlib.util import find_spec

from service.demo.rows import Row

DECAY = 0.9
"""The n-th last training label weighs DECAY**n."""
ALPHA = 0.5
"""This much weight is spread over the labels as they lie in the whole training side."""
INVERSE_REGULARISATION = 10.0
"""The word model's C: on 300 rows of short text 10 and 100 score alike, 1 a little less."""
WORD_OR_SIGN = r"\w+|[^\w\s]"
"""A sign counts as a word: otherwise texts of signs alone (emoji) leave the vocabulary empty."""


def majority(rows: Sequence[Row]) -> list[str]:
    """One prediction a held-out row: the most frequent training label; ties: the first seen."""
    label = Counter(row.label for row in rows if row.split == "train").most_common(1)[0][0]
    return [label for row in rows if row.split == "holdout"]


def recency_prior(rows: Sequence[Row]) -> list[str]:
    """One prediction a held-out row: the heaviest label among the training rows before it.

    Args:
        rows: both sides in the order of time. A held-out row without a training row before it is
            answered from all of them.
    """
    training = [row.label for row in rows if row.split == "train"]
    shares = Counter(training)
    predictions = []
    seen = 0
    for row in rows:
        if row.split == "train":
            seen += 1
            continue
        weights = {label: ALPHA * count / len(training) for label, count in shares.items()}
        for age, label in enumerate(reversed(training[:seen] if seen else training)):
            weights[label] += DECAY**age
        predictions.append(max(weights, key=weights.__getitem__))
    return predictions


def word_model(rows: Sequence[Row]) -> list[str] | None:
    """One prediction a held-out row by TF-IDF over words and word pairs with logistic regression.

    None if scikit-learn, the extra `demo`, isn't installed.
    """
    if find_spec("sklearn") is None:
        return None
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    training = [row for row in rows if row.split == "train"]
    holdout = [row.input for row in rows if row.split == "holdout"]
    words = TfidfVectorizer(ngram_range=(1, 2), token_pattern=WORD_OR_SIGN)
    model = make_pipeline(words, LogisticRegression(C=INVERSE_REGULARISATION, max_iter=2000))
    model.fit([row.input for row in training], [row.label for row in training])
    return [str(label) for label in model.predict(holdout)]
