"""The token ids of an episode and who wrote each of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class Author(StrEnum):
    """Who wrote a piece of an episode."""

    PROMPT = "prompt"
    POLICY = "policy"  # the judge itself: the only part that is parsed, scored and trained on
    EVIDENCE = "evidence"  # an <information> block
    FORCED = "forced"  # tags written for the policy


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive tokens of one author."""

    author: Author
    ids: tuple[int, ...]
    logprobs: tuple[float, ...] = ()  # of the policy's tokens, see engines.base.Completion


@dataclass(slots=True)
class Transcript:
    """An episode as it grows. Ids are only ever appended: what the model saw is what is kept."""

    segments: list[Segment] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)

    def add(self, author: Author, ids: Sequence[int], logprobs: Sequence[float] = ()) -> None:
        if author is Author.POLICY and len(logprobs) != len(ids):
            raise ValueError("each token of the policy needs its log-probability")
        self.segments.append(Segment(author, tuple(ids), tuple(logprobs)))
        self.ids += ids

    def count(self, *authors: Author) -> int:
        """Tokens written by these authors."""
        return sum(len(segment.ids) for segment in self.segments if segment.author in authors)

    def policy_mask(self) -> list[bool]:
        """True where the policy wrote the token; as long as `ids`."""
        return [segment.author is Author.POLICY for segment in self.segments for _ in segment.ids]
