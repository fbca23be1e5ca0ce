"""`Client`: the calls of `AsyncClient` for code without an event loop."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, Self

from medverify.client import AsyncClient
from medverify.loop_thread import LoopThread
from medverify.replies import Candidate, Job, JobResult, Ranked, Reward, RewardItem, Selected, ServiceInfo, Strategy
from verifier.types import Case, Judgment


class Client:
    """A service, from anywhere: plain code, threads, a notebook, a forked worker. Calls block and may overlap.

    Arguments, results and errors of each call are those of `AsyncClient`, where they are described.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        deadline_s: float = 600.0,
        retries: int = 4,
        concurrency: int = 16,
        batch: int = 8,
    ) -> None:
        """As `AsyncClient`."""
        self._client = AsyncClient(
            url, api_key=api_key, deadline_s=deadline_s, retries=retries, concurrency=concurrency, batch=batch
        )
        self._thread = LoopThread("medverify-client")

    @property
    def url(self) -> str:
        """Address of the service."""
        return self._client.url

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. May be called more than once; the next call opens others."""
        self._thread.run(self._client.aclose())
        self._thread.close()

    def verify(
        self, case: Case | Mapping[str, Any], *, seed: int | None = None, deadline_s: float | None = None
    ) -> Judgment:
        """Judge one case."""
        return self._thread.run(self._client.verify(case, seed=seed, deadline_s=deadline_s))

    def verify_many(
        self, cases: Iterable[Case | Mapping[str, Any]], *, seed: int | None = None, deadline_s: float | None = None
    ) -> list[Judgment]:
        """Judge cases; one judgment for each, in their order."""
        return self._thread.run(self._client.verify_many(cases, seed=seed, deadline_s=deadline_s))

    def reward(
        self,
        items: Iterable[RewardItem | Mapping[str, Any]],
        *,
        weights: Mapping[str, float] | None = None,
        accuracy: Literal["verifier", "label"] | None = None,
        seed: int | None = None,
        deadline_s: float | None = None,
    ) -> list[Reward]:
        """Rewards for traces, or for judgments of a policy; one for each item, in their order."""
        work = self._client.reward(items, weights=weights, accuracy=accuracy, seed=seed, deadline_s=deadline_s)
        return self._thread.run(work)

    def select(
        self,
        question: str,
        candidates: Iterable[str | Candidate | Mapping[str, Any]],
        *,
        options: Mapping[str, str] | None = None,
        strategy: Strategy = "soft",
        seed: int | None = None,
        deadline_s: float | None = None,
    ) -> Selected:
        """Choose among candidates for one question."""
        work = self._client.select(
            question, candidates, options=options, strategy=strategy, seed=seed, deadline_s=deadline_s
        )
        return self._thread.run(work)

    def rerank(
        self, query: str, documents: Sequence[str], *, top_n: int | None = None, deadline_s: float | None = None
    ) -> list[Ranked]:
        """Traces of one question in order, best first."""
        return self._thread.run(self._client.rerank(query, documents, top_n=top_n, deadline_s=deadline_s))

    def submit(self, cases: Iterable[Case | Mapping[str, Any]], *, seed: int | None = None) -> Job:
        """Hand in a long batch."""
        return self._thread.run(self._client.submit(cases, seed=seed))

    def job(self, job_id: str) -> Job:
        """How far a job is."""
        return self._thread.run(self._client.job(job_id))

    def jobs(self) -> list[Job]:
        """The jobs that the service knows of."""
        return self._thread.run(self._client.jobs())

    def cancel(self, job_id: str) -> Job:
        """Stop a job; what is judged stays."""
        return self._thread.run(self._client.cancel(job_id))

    def wait(self, job_id: str, *, deadline_s: float | None = None) -> Job:
        """Wait until a job is over."""
        return self._thread.run(self._client.wait(job_id, deadline_s=deadline_s))

    def retry(self, job_id: str) -> Job:
        """Judge again what is left of a job without a judgment."""
        return self._thread.run(self._client.retry(job_id))

    def results(self, job_id: str) -> Iterator[JobResult]:
        """The judgments of a job so far, in the order in which they were made."""
        found = self._client.results(job_id)

        async def following() -> JobResult | None:
            return await anext(found, None)

        while (judgment := self._thread.run(following())) is not None:
            yield judgment

    def info(self) -> ServiceInfo:
        """Who judges there."""
        return self._thread.run(self._client.info())
