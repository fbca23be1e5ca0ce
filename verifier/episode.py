"""One episode: the state that think, search and answer work on, its limits, and what happens when one is hit.

`free.py` and `guided.py` hold the two ways through an episode; both are sequences of the steps defined here.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from configs.settings import JudgeSettings
from retrieval.passage import QueryError, RetrievalError, Retriever
from verifier.confidence import Confidence, LabelTokens, read_confidence
from verifier.engines import base
from verifier.engines.base import Completion, Engine, Finish, Generate, Tokenizer
from verifier.events import Searched, Thought, Watch, unwatched
from verifier.parse import Parser, Tag
from verifier.prompt import CLOSE_INFORMATION, OPEN_INFORMATION, render_passage
from verifier.transcript import Author, Transcript
from verifier.types import EvidencePassage, Search, StopReason

RESERVE = 40  # tokens of context kept back, so that a verdict can always still be forced, even with one token a byte


class Stop(Exception):  # noqa: N818 - an ending, not an error
    """The episode ends here without a verdict of its own."""

    def __init__(self, reason: StopReason, detail: str = "") -> None:
        super().__init__(detail or reason.value)
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Verdict:
    """A label, how sure the judge is of it, and whether the position was forced."""

    label: Literal[0, 1]
    confidence: Confidence
    forced: bool


@dataclass(slots=True)
class Episode:
    """State of one episode."""

    engine: Engine
    sequence: base.Sequence
    retriever: Retriever
    settings: JudgeSettings
    labels: LabelTokens
    seed: int
    watch: Watch = unwatched
    transcript: Transcript = field(default_factory=Transcript)
    parser: Parser = field(default_factory=Parser)
    thoughts: list[str] = field(default_factory=list)
    searches: list[Search] = field(default_factory=list)
    turns: int = 0
    written: int = 0  # tokens of the policy's turns, kept or not
    prefilled: int = 0
    cached: int = 0
    _last: float = field(default_factory=time.perf_counter)  # when the last event was told

    async def ask(
        self, ids: Sequence[int], max_tokens: int = 1, stop: tuple[str, ...] = (), watch: tuple[int, ...] = ()
    ) -> Completion:
        """Let the model continue `ids`; nothing is added to the transcript.

        Raises:
            Stop: it took longer than a turn may.
        """
        how = self.settings.sampling
        request = Generate(tuple(ids), max_tokens, stop, watch, how.temperature, how.top_p, self.seed)
        limit_s = self.settings.limits.turn_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                completion = await self.sequence.generate(request)
        except TimeoutError as error:
            raise Stop(StopReason.DEADLINE, f"the engine gave no turn within {limit_s:g} s") from error
        self.prefilled += completion.prefilled
        self.cached += completion.cached
        return completion

    async def turn(
        self, max_tokens: int | None = None, stop: tuple[str, ...] = (), lead: Sequence[int] = ()
    ) -> tuple[Completion, StopReason | None]:
        """One turn of the policy within all limits, after what there is and `lead`.

        Nothing enters the transcript: the caller decides what of the turn is kept.

        Returns:
            The completion, and the limit that cut it short, if one did.

        Raises:
            Stop: a limit leaves no room for a turn.
        """
        limits = self.settings.limits
        if self.turns >= limits.max_turns:
            raise Stop(StopReason.MAX_TURNS)
        tokens_left = limits.max_new_tokens - self.written
        if tokens_left <= 0:
            raise Stop(StopReason.MAX_TOKENS)
        room = self.room - len(lead)
        if room <= 0:
            raise Stop(StopReason.CONTEXT_FULL)
        bound = min(tokens_left, room, max_tokens or tokens_left)
        self.turns += 1
        completion = await self.ask([*self.transcript.ids, *lead], bound, stop, self.labels.watch)
        self.written += len(completion.ids)
        if completion.finish not in (Finish.LENGTH, Finish.CONTEXT) or bound == max_tokens:
            return completion, None
        return completion, StopReason.MAX_TOKENS if tokens_left <= room else StopReason.CONTEXT_FULL

    def keep_thought(self, text: str) -> None:
        """A thought of the policy's: part of the critique."""
        self.thoughts.append(text)
        self.watch(Thought(text, self.lap_s()))

    def lap_s(self) -> float:
        """Seconds since this was last asked."""
        last, self._last = self._last, time.perf_counter()
        return self._last - last

    @property
    def room(self) -> int:
        """Tokens that the context still takes."""
        return self.engine.max_context - len(self.transcript.ids) - RESERVE

    def decode(self, ids: Sequence[int]) -> str:
        return self.engine.tokenizer.decode(ids)

    def force(self, text: str) -> None:
        """Write tags for the policy."""
        self.transcript.add(Author.FORCED, self.engine.tokenizer.encode(text))

    async def search(self, query: str) -> None:
        """Look `query` up and show the policy what was found.

        Raises:
            Stop: the query is unusable, the search failed or found nothing, or the best passage does not fit. An outage is
                never shown to the policy as an absence of evidence.
        """
        limits = self.settings.limits
        if len(self.searches) >= limits.max_searches:
            raise Stop(StopReason.MAX_SEARCHES)
        started = time.perf_counter()
        try:
            async with asyncio.timeout(limits.search_timeout_s):
                hits = await self.retriever.search(query, self.settings.top_k)
        except QueryError as error:
            raise Stop(StopReason.BAD_QUERY, str(error)) from error
        except RetrievalError as error:
            raise Stop(StopReason.RETRIEVAL_ERROR, str(error)) from error
        except TimeoutError as error:
            raise Stop(StopReason.RETRIEVAL_ERROR, f"no answer within {limits.search_timeout_s} s") from error
        if not hits:
            raise Stop(StopReason.RETRIEVAL_ERROR, "the retriever answered without a single passage")
        passages = list(map(EvidencePassage.of, hits))
        shown = self._show(passages)
        elapsed = (time.perf_counter() - started) * 1000
        self.searches.append(
            Search(query=query, passages=passages[:shown], omitted=len(passages) - shown, latency_ms=elapsed)
        )
        self.lap_s()
        self.watch(Searched(self.searches[-1], elapsed / 1000))

    def _show(self, passages: list[EvidencePassage]) -> int:
        """Append an <information> block; whole passages are dropped from the bottom until it fits. Returns how many stay."""
        encode = self.engine.tokenizer.encode
        opening, closing = encode(OPEN_INFORMATION), encode(CLOSE_INFORMATION)
        texts = [encode(render_passage(passage)) for passage in passages]
        room = self.room - len(opening) - len(closing)
        budget = min(room, self.settings.information_tokens)
        shown = len(texts)
        while shown > 1 and sum(map(len, texts[:shown])) > budget:
            shown -= 1
        if len(texts[0]) > room:
            raise Stop(StopReason.CONTEXT_FULL, "no room for the best passage")
        self.transcript.add(Author.EVIDENCE, [*opening, *(token for text in texts[:shown] for token in text), *closing])
        return shown

    async def confidence_after(self, ids: Sequence[int]) -> Confidence | None:
        """Read both labels' probabilities at the position after `ids`."""
        completion = await self.ask(ids, watch=self.labels.watch)
        return read_confidence(completion.watched[0], self.labels)

    async def force_verdict(self) -> Verdict:
        """Force the verdict position and read it. The likelier label is the verdict.

        Raises:
            Stop: the engine reports neither label.
        """
        self.force(Tag.ANSWER.opening)
        confidence = await self.confidence_after(self.transcript.ids)
        if confidence is None:
            raise Stop(StopReason.ANSWERED, "neither label is among the tokens that the engine reports")
        label: Literal[0, 1] = 1 if confidence.p_correct > 0.5 else 0
        self.force(f"{label}{Tag.ANSWER.closing}")
        return Verdict(label, confidence, forced=True)


def leading_ids(tokenizer: Tokenizer, ids: Sequence[int], characters: int) -> int:
    """How many of the first ids spell no more than the first `characters` of their text."""
    count = len(ids)
    while count and len(tokenizer.decode(ids[:count])) > characters:
        count -= 1
    return count
