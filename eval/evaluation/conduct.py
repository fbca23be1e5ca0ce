"""How a judge went about its work: endings, searches, evidence, cost, agreement with itself."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from eval.columns import NOT_JUDGED, Columns
from eval.evaluation.estimates import figure, ratio_figure
from eval.evidence import Key, resolved, shown
from eval.metrics import bootstrap, fleiss_kappa, pairwise_agreement
from eval.report.schema import Agreement, Conduct, Cost, Failure, Figure
from verifier.types import EvidencePassage, Judgment, Status

_Count = Callable[[Judgment], float]  # of something in a judgment


def conduct(
    scorer: str,
    judgments: Sequence[Judgment],
    questions: Mapping[str, str],
    missing_passages: Sequence[Key] | None = None,
) -> Conduct:
    """Count endings and look at the searches.

    Args:
        scorer: whose judgments these are.
        judgments: failed ones included.
        questions: the question of each trace that there was to judge, by the trace's id.
        missing_passages: which passages the index does not hold; None if nobody looked.
    """
    scored = [judgment for judgment in judgments if judgment.status is Status.SCORED]
    with_mass = [judgment for judgment in scored if judgment.label_mass is not None]
    lost = frozenset(missing_passages or ())

    def ratio(part: _Count, whole: _Count = _once, of: Sequence[Judgment] = judgments) -> Figure:
        parts, wholes = (np.asarray([count(judgment) for judgment in of], dtype=np.float64) for count in (part, whole))
        return ratio_figure(parts, wholes, [questions[judgment.id] for judgment in of])

    return Conduct(
        scorer=scorer,
        judgments=len(judgments),
        missing=len(questions) - len(judgments),
        statuses=_counts(judgment.status.value for judgment in judgments),
        stop_reasons=_counts(judgment.stop_reason.value for judgment in judgments),
        forced=ratio(lambda judgment: judgment.forced, of=scored),
        label_mass=ratio(lambda judgment: judgment.label_mass or 0.0, of=with_mass),
        turns=ratio(lambda judgment: judgment.turns),
        searches=sum(map(_searches, judgments)),
        searches_per_trace=ratio(_searches),
        never_searched=ratio(lambda judgment: not judgment.searches),
        empty=ratio(_empty_searches, _searches),
        repeated=ratio(_repeated_searches, _searches),
        passages=sum(map(_passages, judgments)),
        passages_per_search=ratio(_passages, _searches),
        omitted=sum(search.omitted for judgment in judgments for search in judgment.searches),
        well_formed=ratio(_well_formed_passages, _passages),
        resolved=None if missing_passages is None else ratio(lambda judgment: resolved(judgment, lost), _passages),
    )


def cost(scorer: str, judgments: Sequence[Judgment], seconds: float | None) -> Cost | None:
    """Means over the judgments, failed ones included: they were paid for. None if there are none.

    Args:
        scorer: whose judgments these are.
        judgments: what was judged or tried.
        seconds: wall-clock time by trace, as the run measured it.
    """
    if not judgments:
        return None
    used = [judgment.usage for judgment in judgments]
    count = len(judgments)
    return Cost(
        scorer=scorer,
        judgments=count,
        prompt_tokens=sum(usage.prompt_tokens for usage in used) / count,
        policy_tokens=sum(usage.policy_tokens for usage in used) / count,
        environment_tokens=sum(usage.environment_tokens for usage in used) / count,
        prefilled_tokens=sum(usage.prefilled_tokens for usage in used) / count,
        cached_tokens=sum(usage.cached_tokens for usage in used) / count,
        searches=sum(len(judgment.searches) for judgment in judgments) / count,
        seconds=seconds,
    )


def agreement(by_seed: Mapping[int, Columns]) -> Agreement | None:
    """How far the seeds agree on the traces that all of them judged; None for fewer than two seeds."""
    if len(by_seed) < 2:
        return None
    verdicts_NS = np.stack([columns.verdicts for columns in by_seed.values()], axis=1)
    p_NS = np.stack([columns.p for columns in by_seed.values()], axis=1)
    judged = (verdicts_NS != NOT_JUDGED).all(axis=1)
    verdicts_NS, p_NS = verdicts_NS[judged], p_NS[judged]
    everywhere = next(iter(by_seed.values())).questions
    questions = [question for question, kept in zip(everywhere, judged, strict=True) if kept]
    each = np.ones(len(questions))
    return Agreement(
        seeds=list(by_seed),
        traces=len(questions),
        verdicts=figure(bootstrap(lambda weights: pairwise_agreement(verdicts_NS, weights), questions)),
        unanimous=ratio_figure((verdicts_NS == verdicts_NS[:, :1]).all(axis=1).astype(np.float64), each, questions),
        kappa=figure(bootstrap(lambda weights: fleiss_kappa(verdicts_NS, weights), questions)),
        spread=ratio_figure(p_NS.std(axis=1), each, questions),
    )


def failures(scorer: str, judgments: Iterable[Judgment]) -> list[Failure]:
    """What was not judged, and why."""
    return [
        Failure(
            scorer=scorer,
            trace=judgment.id,
            status=judgment.status.value,
            stop_reason=judgment.stop_reason.value,
            detail=judgment.detail,
        )
        for judgment in judgments
        if judgment.status is not Status.SCORED
    ]


def _once(_: Judgment) -> int:
    return 1


def _searches(judgment: Judgment) -> int:
    return len(judgment.searches)


def _empty_searches(judgment: Judgment) -> int:
    return sum(not search.passages for search in judgment.searches)


def _repeated_searches(judgment: Judgment) -> int:
    queries = [" ".join(search.query.casefold().split()) for search in judgment.searches]
    return sum(query in queries[:position] for position, query in enumerate(queries))


def _passages(judgment: Judgment) -> int:
    return len(shown([judgment]))


def _well_formed_passages(judgment: Judgment) -> int:
    return sum(
        _is_well_formed(passage, rank)
        for search in judgment.searches
        for rank, passage in enumerate(search.passages, start=1)
    )


def _is_well_formed(passage: EvidencePassage, rank: int) -> bool:
    return bool(passage.id.strip() and passage.text.strip()) and passage.rank == rank and math.isfinite(passage.score)


def _counts(values: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(values).items(), key=lambda item: (-item[1], item[0])))
