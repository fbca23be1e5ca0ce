"""How a judge went about its work: endings, searches, evidence, cost, agreement with itself."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from eval.columns import NOT_JUDGED, Columns
from eval.evaluation.estimates import number
from eval.evidence import Key, resolved_share, shown
from eval.metrics import fleiss_kappa, pairwise_agreement
from eval.report.schema import Agreement, Conduct, Cost, Failure
from verifier.types import EvidencePassage, Judgment, Search, Status


def conduct(
    scorer: str, judgments: Sequence[Judgment], traces: int, missing_passages: Sequence[Key] | None = None
) -> Conduct:
    """Count endings and look at the searches.

    Args:
        scorer: whose judgments these are.
        judgments: failed ones included.
        traces: how many there were to judge.
        missing_passages: which passages the index does not hold; None if nobody looked.
    """
    searches = [search for judgment in judgments for search in judgment.searches]
    scored = [judgment for judgment in judgments if judgment.status is Status.SCORED]
    passages = shown(judgments)
    return Conduct(
        scorer=scorer,
        judgments=len(judgments),
        missing=traces - len(judgments),
        statuses=_counts(judgment.status.value for judgment in judgments),
        stop_reasons=_counts(judgment.stop_reason.value for judgment in judgments),
        forced=_mean(judgment.forced for judgment in scored),
        label_mass=_mean(judgment.label_mass for judgment in scored if judgment.label_mass is not None),
        turns=_mean(judgment.turns for judgment in judgments),
        searches=len(searches),
        searches_per_trace=_mean(len(judgment.searches) for judgment in judgments),
        never_searched=_mean(not judgment.searches for judgment in judgments),
        empty=_mean(not search.passages for search in searches),
        repeated=_mean(again for judgment in judgments for again in _asked_before(judgment.searches)),
        passages=len(passages),
        passages_per_search=_mean(len(search.passages) for search in searches),
        omitted=sum(search.omitted for search in searches),
        well_formed=_mean(
            _is_well_formed(passage, rank)
            for search in searches
            for rank, passage in enumerate(search.passages, start=1)
        ),
        resolved=None if missing_passages is None else resolved_share(judgments, missing_passages),
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
    if not len(verdicts_NS):
        return Agreement(seeds=list(by_seed), traces=0, verdicts=None, unanimous=None, kappa=None, spread=None)
    return Agreement(
        seeds=list(by_seed),
        traces=len(verdicts_NS),
        verdicts=number(float(pairwise_agreement(verdicts_NS)[0])),
        unanimous=float((verdicts_NS == verdicts_NS[:, :1]).all(axis=1).mean()),
        kappa=number(float(fleiss_kappa(verdicts_NS)[0])),
        spread=float(p_NS.std(axis=1).mean()),
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


def _asked_before(searches: Sequence[Search]) -> list[bool]:
    queries = [" ".join(search.query.casefold().split()) for search in searches]
    return [query in queries[:position] for position, query in enumerate(queries)]


def _is_well_formed(passage: EvidencePassage, rank: int) -> bool:
    return bool(passage.id.strip() and passage.text.strip()) and passage.rank == rank and math.isfinite(passage.score)


def _counts(values: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(values).items(), key=lambda item: (-item[1], item[0])))


def _mean(values: Iterable[float]) -> float | None:
    numbers = list(values)
    return sum(numbers) / len(numbers) if numbers else None
