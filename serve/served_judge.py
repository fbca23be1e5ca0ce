"""What the service needs of a judge, wherever it runs."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from retrieval.passage import Retriever
from verifier.events import Watch, unwatched
from verifier.types import Case, Judgment


class ServedJudge(Protocol):
    """A `verifier.judge.Judge` in this process, or replicas of one elsewhere."""

    @property
    def judge_id(self) -> str: ...

    @property
    def seed(self) -> int:
        """In force wherever a call names none."""
        ...

    @property
    def deadline_s(self) -> float:
        """For a case, where its caller allows as much."""
        ...

    @property
    def retriever(self) -> Retriever:
        """Where it looks things up."""
        ...

    @property
    def max_together(self) -> int:
        """Cases that are judged at once; more wait."""
        ...

    def calibrated(self, p_correct: float | None) -> float | None:
        """What a p(1) of this judge means; None without a calibration, and for a case that was not judged."""
        ...

    async def verify(
        self, case: Case, seed: int | None = None, *, deadline_s: float | None = None, watch: Watch = unwatched
    ) -> Judgment:
        """Judge one case. Always returns: whatever fails is a status, never a number."""
        ...

    async def warm_up(self) -> None: ...

    async def aclose(self) -> None: ...


#: How many judges can be asked at the moment.
Replicas = Callable[[], Awaitable[int]]


async def one() -> int:
    """The judge is in this process."""
    return 1
