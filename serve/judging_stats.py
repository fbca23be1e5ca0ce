"""Counts of what a judging service does, cheap enough to be kept on every case and readable at any moment."""

from collections import Counter
from dataclasses import dataclass, field

from retrieval.stats import Histogram
from verifier.events import Decided, Event, Opened, Searched, Thought
from verifier.types import Judgment

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)


def _histogram() -> Histogram:
    return Histogram(SECONDS)


@dataclass(slots=True)
class JudgingStats:
    """What a service did since it was started. Written by its event loop only."""

    given: Counter[str] = field(default_factory=Counter)  # judgments, by status, however they came about
    cached: int = 0  # given from the cache
    coalesced: int = 0  # given from the episode of an equal case
    cancelled: int = 0  # episodes that nobody waited for any more
    tokens: Counter[str] = field(default_factory=Counter)  # of episodes that ended by themselves, by kind
    queue: Histogram = field(default_factory=_histogram)  # seconds, as all that follow: until an episode had its place
    think: Histogram = field(default_factory=_histogram)
    search: Histogram = field(default_factory=_histogram)
    verdict: Histogram = field(default_factory=_histogram)
    episode: Histogram = field(default_factory=_histogram)

    def queued(self, seconds: float) -> None:
        """An episode waited for its turn among those of all callers."""
        self.queue.observe(seconds)

    def told(self, event: Event) -> None:
        """Something happened in an episode."""
        match event:
            case Thought():
                self.think.observe(event.seconds)
            case Searched():
                self.search.observe(event.seconds)
            case Decided():
                self.verdict.observe(event.seconds)
            case Opened():
                pass  # places are given out by the service, so that the engine has one at once

    def judged(self, judgment: Judgment) -> None:
        """An episode ended by itself."""
        if judgment.latency_ms is not None:
            self.episode.observe(judgment.latency_ms / 1000)
        usage = judgment.usage
        self.tokens["prompt"] += usage.prompt_tokens
        self.tokens["policy"] += usage.policy_tokens
        self.tokens["environment"] += usage.environment_tokens
        self.tokens["prefilled"] += usage.prefilled_tokens
        self.tokens["cached"] += usage.cached_tokens
