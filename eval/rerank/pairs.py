"""Preference pairs for DPO: of two samples of a question, the one that the judge finds likelier to be right is the chosen one."""

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

from eval.rerank.options import OutputOptions, Pairing
from eval.rerank.ranking import Ranking, Sample
from eval.rerank.samples import Samples
from verifier.types import Case

_Text = tuple[Case, Any]  # and what names it


def pairs_of(
    group: Sequence[Sample], ranking: Ranking, samples: Samples, options: OutputOptions
) -> Iterator[dict[str, Any]]:
    """The pairs of one question, both of which were judged, best chosen first. Equals are never a pair.

    Args:
        group: samples of the question, best first.
        ranking: has their rows.
        samples: reads them.
        options: which pairs are wanted.
    """
    judged = [(sample, sample.p) for sample in group if sample.p is not None]
    if options.pairs is Pairing.BEST_WORST:
        judged = [judged[0], judged[-1]] if len(judged) > 1 else []
    texts = dict[int, dict[int, _Text]]()  # by row
    for (chosen, p), (rejected, q) in combinations(judged, 2):
        if p == q or p - q < options.min_margin or p < (options.min_p or 0):
            continue
        for sample in (chosen, rejected):
            if sample.row not in texts:
                texts[sample.row] = _texts(ranking, samples, options, sample)
        (better, better_name), (worse, worse_name) = (texts[sample.row][sample.place] for sample in (chosen, rejected))
        if _answer(better) != _answer(worse):
            yield {
                "prompt": _prompt(better),
                "chosen": _answer(better),
                "rejected": _answer(worse),
                "margin": p - q,
                "p_chosen": p,
                "p_rejected": q,
                "chosen_id": better_name,
                "rejected_id": worse_name,
            }


def _texts(ranking: Ranking, samples: Samples, options: OutputOptions, sample: Sample) -> dict[int, _Text]:
    """The samples of a row by their places, named by the id column, else by the row's number; in a list by both places."""
    row = ranking.row(sample)
    record = samples.parse(row)
    if not isinstance(record, dict):
        raise TypeError(f"{samples.source.unit} {row.number} was an object when it was judged")
    name = row.number if options.id is None else record.get(options.id)
    listed = samples.columns.samples is not None
    cases = samples.cases(row, record)
    return {place: (case, f"{name}.{place}" if listed else name) for place, case in cases if isinstance(case, Case)}


def _prompt(case: Case) -> str:
    """The question as a policy would be asked it."""
    options = (case.question.options or {}).items()
    return "\n".join([case.question.text, *(f"{letter}. {text}" for letter, text in options)])


def _answer(case: Case) -> str:
    return case.trace.text or "\n".join(case.trace.steps or ())
