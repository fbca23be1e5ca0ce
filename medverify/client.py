"""`AsyncClient`: everything that a running service offers to programs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from pydantic import TypeAdapter

from medverify.batches import in_batches, unless_all_failed
from medverify.calls import given
from medverify.job_calls import JobCalls
from medverify.replies import (
    COMPONENTS,
    Candidate,
    Judgments,
    Ranked,
    Ranking,
    Reward,
    RewardItem,
    Rewards,
    Selected,
    ServiceInfo,
    Strategy,
    case_of,
)
from verifier.service import OutOfTimeError, RemoteJudgeError, WrongAnswerError
from verifier.types import Case, Judgment, Status, StopReason

_ITEM: TypeAdapter[RewardItem] = TypeAdapter(RewardItem)


class AsyncClient(JobCalls):
    """A service, from an event loop. Use it from one loop at a time; calls may overlap.

    Every call has one deadline, over all its tries and waits. Lost connections, 502 and 504 are tried again; a busy service, 429
    or 503, is waited for as long as its `Retry-After` says; all waits are random in part. Errors are those of
    `medverify.errors`. What could not be judged is a status, never a number.
    """

    async def verify(
        self, case: Case | Mapping[str, Any], *, seed: int | None = None, deadline_s: float | None = None
    ) -> Judgment:
        """Judge one case.

        Args:
            case: a `Case`, or a mapping with `question`, `trace` and perhaps `options` and `id`.
            seed: of the judge's sampling; the service's own if None.
            deadline_s: seconds for all of it.

        Raises:
            pydantic.ValidationError: it is no case.
            RemoteJudgeError: there is no judgment; see `medverify.errors`.
        """
        asked = case_of(case, 0)
        body = {"case": asked.model_dump(mode="json", exclude_none=True), **given(seed=seed)}
        reply = await self._judging("/verify", body, self._ends(deadline_s))
        judgment = self._service.read(reply, Judgment)
        self._service.check_answers(judgment, asked, seed)
        return judgment

    async def verify_many(
        self,
        cases: Iterable[Case | Mapping[str, Any]],
        *,
        seed: int | None = None,
        deadline_s: float | None = None,
    ) -> list[Judgment]:
        """Judge cases; one judgment for each, in their order.

        A case that the service refused, lost or did not finish in time has a `status` that says so, and no number.

        Raises:
            pydantic.ValidationError: one is no case.
            RemoteJudgeError: nothing at all was judged.
        """
        asked = [case_of(case, place) for place, case in enumerate(cases)]
        ends = self._ends(deadline_s)

        async def send(batch: Sequence[Case]) -> list[Judgment]:
            body = {"cases": [case.model_dump(mode="json", exclude_none=True) for case in batch], **given(seed=seed)}
            reply = await self._judging("/verify", body, ends, len(batch))
            judgments = self._service.read(reply, Judgments).judgments
            self._expect(len(judgments), len(batch), "judgments")
            for judgment, case in zip(judgments, batch, strict=True):
                self._service.check_answers(judgment, case, seed)
            return judgments

        found = unless_all_failed(await in_batches(asked, self._batch, send))
        judge_id = next((result.judge_id for result in found if isinstance(result, Judgment)), "")
        return [
            result if isinstance(result, Judgment) else _unjudged(case, result, seed or 0, judge_id)
            for case, result in zip(asked, found, strict=True)
        ]

    async def reward(
        self,
        items: Iterable[RewardItem | Mapping[str, Any]],
        *,
        weights: Mapping[str, float] | None = None,
        accuracy: Literal["verifier", "label"] | None = None,
        seed: int | None = None,
        deadline_s: float | None = None,
    ) -> list[Reward]:
        """Rewards for traces, or for what a policy that learns to judge wrote; one for each item, in their order.

        Args:
            items: `TraceItem`s and `JudgeItem`s, or mappings of that form. Without an id, an item is named by its place.
            weights: of `accuracy`, `coherence` and `format` in the reward; the service's own if None.
            accuracy: what the accuracy is: the verifier's probability, or whether the answer fits the label.
            seed: of the judge's sampling.
            deadline_s: seconds for all of it.

        Raises:
            pydantic.ValidationError: one is no item.
            RemoteJudgeError: nothing at all was judged.
        """
        asked = [_named(_ITEM.validate_python(item), place) for place, item in enumerate(items)]
        ends = self._ends(deadline_s)
        options = given(seed=seed, weights=dict(weights) if weights is not None else None, accuracy=accuracy)

        async def send(batch: Sequence[RewardItem]) -> list[Reward]:
            body = {"items": [item.model_dump(mode="json", exclude_none=True) for item in batch], **options}
            rewards = self._service.read(await self._judging("/reward", body, ends, len(batch)), Rewards).rewards
            self._expect([reward.id for reward in rewards], [item.id for item in batch], "rewards")
            return rewards

        found = unless_all_failed(await in_batches(asked, self._batch, send))
        return [
            result if isinstance(result, Reward) else _unrewarded(item, result)
            for item, result in zip(asked, found, strict=True)
        ]

    async def select(
        self,
        question: str,
        candidates: Iterable[str | Candidate | Mapping[str, Any]],
        *,
        options: Mapping[str, str] | None = None,
        strategy: Strategy = "soft",
        seed: int | None = None,
        deadline_s: float | None = None,
    ) -> Selected:
        """Choose among candidates for one question.

        Args:
            question: the question.
            candidates: traces as texts, or `Candidate`s, or mappings of that form.
            options: letter to text, if it is multiple choice.
            strategy: `best_of_n`, `hard`, `soft` or `majority`.
            seed: of the judge's sampling.
            deadline_s: seconds for all of it.

        Raises:
            pydantic.ValidationError: one is no candidate.
            RemoteJudgeError: nothing was chosen.
        """
        asked = [
            Candidate.model_validate({"trace": given} if isinstance(given, str) else given) for given in candidates
        ]
        body = {
            "question": question,
            "candidates": [candidate.model_dump(mode="json", exclude_none=True) for candidate in asked],
            "strategy": strategy,
            **given(options=dict(options) if options is not None else None, seed=seed),
        }
        selected = self._service.read(
            await self._judging("/select", body, self._ends(deadline_s), len(asked)), Selected
        )
        places = [place for vote in selected.votes for place in vote.candidates]
        if not all(0 <= place < len(asked) for place in [*places, selected.chosen or 0]):
            raise WrongAnswerError(f"{self.url}: it chose a candidate that was not sent")
        return selected

    async def rerank(
        self, query: str, documents: Sequence[str], *, top_n: int | None = None, deadline_s: float | None = None
    ) -> list[Ranked]:
        """Traces of one question in order, best first.

        Raises:
            NotJudgedError: one of them could not be judged; this protocol has no word for a part.
            RemoteJudgeError: anything else.
        """
        body = {"query": query, "documents": list(documents), **given(top_n=top_n)}
        reply = await self._judging("/v1/rerank", body, self._ends(deadline_s), len(documents))
        results = self._service.read(reply, Ranking).results
        self._expect(len(results), len(documents) if top_n is None else min(top_n, len(documents)), "documents")
        if any(result.index >= len(documents) for result in results):
            raise WrongAnswerError(f"{self.url}: it ranked a document that was not sent")
        return results

    async def info(self) -> ServiceInfo:
        """Who judges there: ids, digests, measured quality."""
        return self._service.read(await self._call("GET", "/info", self._soon()), ServiceInfo)


def _named(item: RewardItem, place: int) -> RewardItem:
    return item if item.id is not None else item.model_copy(update={"id": str(place)})


def _unjudged(case: Case, error: RemoteJudgeError, seed: int, judge_id: str) -> Judgment:
    late = isinstance(error, OutOfTimeError)
    status, reason = (Status.TIMEOUT, StopReason.DEADLINE) if late else (Status.ENGINE_FAILED, StopReason.ENGINE_ERROR)
    return Judgment.unjudged(case, status, reason, str(error), seed=seed, judge_id=judge_id)


def _unrewarded(item: RewardItem, error: RemoteJudgeError) -> Reward:
    status = Status.TIMEOUT if isinstance(error, OutOfTimeError) else Status.ENGINE_FAILED
    return Reward(
        id=item.id or "", status=status.value, reward=None, components=dict.fromkeys(COMPONENTS), detail=str(error)
    )
