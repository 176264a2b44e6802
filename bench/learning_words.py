"""The word model: TF-IDF over words and pairs of words with logistic regression.

What needs no language model and no minute; a weaker rival would make any adapter look good.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

import numpy as np

from bench.learning_rows import LabelledText
from service.demo.baselines import INVERSE_REGULARISATION, WORD_OR_SIGN
from trainer.priors import Scores

_UNSEEN = -12.0
"""log-probability of a label that no training row has; about the least the model ever gives."""


def words_installed() -> bool:
    """Whether scikit-learn, the extra `demo`, is there."""
    return find_spec("sklearn") is not None


def word_scores(
    training: Sequence[LabelledText], asked: Sequence[LabelledText], labels: Sequence[str]
) -> Scores:
    """Log-probabilities [rows, labels] of the rows asked; their own labels aren't looked at."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    words = TfidfVectorizer(ngram_range=(1, 2), token_pattern=WORD_OR_SIGN, sublinear_tf=True)
    model = make_pipeline(words, LogisticRegression(C=INVERSE_REGULARISATION, max_iter=2000))
    model.fit([row.input for row in training], [row.label for row in training])
    found = np.full((len(asked), len(labels)), _UNSEEN)
    predicted = model.predict_log_proba([row.input for row in asked])
    for column, label in enumerate(model.classes_):
        found[:, labels.index(label)] = predicted[:, column]
    return found
