"""How good a ranking is: pure functions over the grades of what was found, and means with intervals over queries.

The conventions are those of trec_eval, which BEIR's published figures use: a document's gain is its grade, unjudged documents
have grade 0, documents of grade 1 and above are relevant, and the ideal ranking is that of all judged documents of the query.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from eval.metrics import Estimate

Grades = Mapping[str, int]  # of the judged documents of one query, by document


def ndcg(ranked: Sequence[str], grades: Grades, k: int) -> float:
    """Discounted gain of the first k, as a share of the best that any ranking could have (trec_eval's ndcg_cut).

    0 where no document is relevant.
    """
    ideal = _dcg(sorted(grades.values(), reverse=True)[:k])
    return _dcg([grades.get(document, 0) for document in ranked[:k]]) / ideal if ideal > 0 else 0.0


def recall(ranked: Sequence[str], grades: Grades, k: int) -> float:
    """Share of the relevant documents that are among the first k; 0 where there are none."""
    relevant = {document for document, grade in grades.items() if grade >= 1}
    return len(relevant.intersection(ranked[:k])) / len(relevant) if relevant else 0.0


def reciprocal_rank(ranked: Sequence[str], grades: Grades) -> float:
    """1 / rank of the first relevant document; 0 if none was found."""
    return next((1 / rank for rank, document in enumerate(ranked, start=1) if grades.get(document, 0) >= 1), 0.0)


def mean(values: Sequence[float], *, samples: int = 1000, seed: int = 0) -> Estimate:
    """The mean over queries with its 95 % percentile interval, queries being drawn with replacement.

    Raises:
        ValueError: no values.
    """
    if not values:
        raise ValueError("no queries: nothing to measure")
    array = np.asarray(values, dtype=np.float64)
    draws = array[np.random.default_rng(seed).integers(len(array), size=(samples, len(array)))].mean(axis=1)
    low, high = np.percentile(draws, [2.5, 97.5])
    return Estimate(float(array.mean()), float(low), float(high))


def _dcg(gains: Sequence[int]) -> float:
    # A negative grade, which some collections use for spam, is no loss: trec_eval counts it as 0.
    return sum(max(gain, 0) / float(np.log2(rank + 1)) for rank, gain in enumerate(gains, start=1))
