"""Judging several traces so that their order cannot matter."""

from collections.abc import Sequence

from serve.callers import Caller
from serve.judging import JudgingService
from verifier.types import Case, Judgment


async def judge_distinct(
    service: JudgingService,
    cases: Sequence[Case],
    *,
    caller: Caller,
    seed: int | None = None,
    deadline_s: float | None = None,
) -> list[Judgment]:
    """Judge cases in the order of their digests, equal ones once: what shares a batch follows from the content alone.

    Returns:
        One judgment a case, in the order of the cases; equal cases have the same judgment under their own ids.

    Raises:
        ServiceError: as `JudgingService.judge_all`.
    """
    digests = [case.digest for case in cases]
    distinct = dict(sorted(zip(digests, cases, strict=True), key=lambda pair: pair[0]))
    judgments = await service.judge_all(list(distinct.values()), caller=caller, seed=seed, deadline_s=deadline_s)
    by_digest = dict(zip(distinct, judgments, strict=True))
    return [by_digest[digest].model_copy(update={"id": case.id}) for digest, case in zip(digests, cases, strict=True)]
