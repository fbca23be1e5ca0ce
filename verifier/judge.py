"""The judge: a model, an index, a prompt and limits, put together; one call judges one case."""

import asyncio
import hashlib
import json
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Literal

from configs.settings import JudgeSettings
from retrieval.passage import Retriever
from verifier.calibration import Calibration
from verifier.confidence import label_tokens
from verifier.engines import base
from verifier.engines.base import ContextFullError, Engine, EngineError
from verifier.episode import RESERVE, Episode, Stop, Verdict
from verifier.events import Decided, Opened, Watch, unwatched
from verifier.free import run_free
from verifier.guided import run_guided
from verifier.parse import PARSER_VERSION, Parse
from verifier.prompt import Prompt, prefix_ids, prompt_ids
from verifier.reward import OUTSIDE_THE_POLICY, format_score
from verifier.transcript import Author, Transcript
from verifier.types import Case, Judgment, Status, StopReason, Usage
from verifier.untrusted import NEUTRALISE_VERSION

logger = logging.getLogger(__name__)

Mode = Literal["free", "guided"]
_MODES: dict[Mode, Callable[[Episode], Awaitable[Verdict]]] = {"free": run_free, "guided": run_guided}

#: What an episode is that ended without a verdict.
_STATUS = {
    StopReason.ANSWERED: Status.UNPARSEABLE,
    StopReason.END_OF_TEXT: Status.UNPARSEABLE,
    StopReason.BAD_QUERY: Status.UNPARSEABLE,
    StopReason.MAX_TURNS: Status.TRUNCATED,
    StopReason.MAX_SEARCHES: Status.TRUNCATED,
    StopReason.MAX_TOKENS: Status.TRUNCATED,
    StopReason.CONTEXT_FULL: Status.TRUNCATED,
    StopReason.PROMPT_TOO_LONG: Status.TRUNCATED,
    StopReason.DEADLINE: Status.TIMEOUT,
    StopReason.RETRIEVAL_ERROR: Status.RETRIEVAL_FAILED,
    StopReason.ENGINE_ERROR: Status.ENGINE_FAILED,
}
#: Endings after which the verdict position may still be forced: the policy had its say, nothing broke.
_FORCEABLE = frozenset(
    reason
    for reason, status in _STATUS.items()
    if status in (Status.UNPARSEABLE, Status.TRUNCATED) and reason is not StopReason.PROMPT_TOO_LONG
)

_SHORT = 4000  # characters


@dataclass(frozen=True, slots=True)
class Outcome:
    """A judgment with what training needs of the episode behind it."""

    judgment: Judgment
    transcript: Transcript
    read: Parse  # of the policy's own text; empty in guided mode


class Judge:
    """Judges cases one by one, in batches, or as part of a rollout."""

    def __init__(
        self,
        engine: Engine,
        retriever: Retriever,
        prompt: Prompt,
        mode: Mode,
        settings: JudgeSettings,
        *,
        calibration: Calibration | None = None,
    ) -> None:
        """Put a judge together.

        Raises:
            EngineError: the tokenizer cannot spell the labels.
            CalibrationError: the calibration was fitted for another judge.
        """
        self.engine = engine
        self.retriever = retriever
        self.prompt = prompt
        self.mode = mode
        self.settings = settings
        self.labels = label_tokens(engine.tokenizer)
        self.judge_id = judge_id(engine, retriever, prompt, mode, settings)
        if calibration is not None:
            calibration.check_judge(self.judge_id)
        self.calibration = calibration

    def calibrated(self, p_correct: float | None) -> float | None:
        """What a p(1) of this judge means; None without a calibration, and for a case that was not judged."""
        return None if self.calibration is None or p_correct is None else self.calibration.apply(p_correct)

    def calibrates(self, judgment: Judgment) -> bool:
        """Whether the judgment's `p_calibrated` is what this judge would give, but for the last bits of a logarithm."""
        there, here = judgment.p_calibrated, self.calibrated(judgment.p_correct)
        return there == here if there is None or here is None else abs(there - here) < 1e-9

    async def warm_up(self) -> None:
        """Compute what all prompts share before the first case comes."""
        await self.engine.preload(prefix_ids(self.prompt, self.engine.tokenizer))

    async def aclose(self) -> None:
        """Close the engine and the retriever."""
        await self.engine.aclose()
        await self.retriever.aclose()

    @property
    def seed(self) -> int:
        """The settings' seed: in force wherever a call names none."""
        return self.settings.sampling.seed

    @property
    def deadline_s(self) -> float:
        """Seconds that a case may take, the wait for a place in the engine included."""
        return self.settings.limits.deadline_s

    @property
    def max_together(self) -> int:
        """Cases that can be judged as one batch."""
        return self.engine.max_sequences

    async def verify(
        self, case: Case, seed: int | None = None, *, deadline_s: float | None = None, watch: Watch = unwatched
    ) -> Judgment:
        """Judge one case. Always returns: whatever fails is a status, never a number.

        Args:
            case: what to judge.
            seed: in place of the settings' seed.
            deadline_s: in place of the settings' deadline, if it is sooner. It covers the wait for a place in the engine too.
            watch: told what happens, as it happens.
        """
        return (await self._verify([case], seed, deadline_s, watch))[0]

    async def verify_together(self, cases: Sequence[Case], seed: int | None = None) -> list[Judgment]:
        """Judge cases as one batch, in step with one another, at most `max_together` of them.

        The same cases in the same order give the same numbers each time, unless a deadline strikes.
        """
        return await self._verify(cases, seed)

    async def _verify(
        self, cases: Sequence[Case], seed: int | None, deadline_s: float | None = None, watch: Watch = unwatched
    ) -> list[Judgment]:
        allowed_s = min(filter(None, (self.settings.limits.deadline_s, deadline_s)))
        asked = asyncio.get_running_loop().time()
        deadline = asked + allowed_s
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout_at(deadline):
                    sequences = await stack.enter_async_context(self.engine.open(len(cases)))
                watch(Opened(asyncio.get_running_loop().time() - asked))
                runs = (
                    self.run(case, sequence, seed, deadline, watch)
                    for case, sequence in zip(cases, sequences, strict=True)
                )
                return [outcome.judgment for outcome in await asyncio.gather(*runs)]
        except TimeoutError:
            reason, detail = StopReason.DEADLINE, f"no place in the engine within {allowed_s:g} s"
        except EngineError as error:
            reason, detail = StopReason.ENGINE_ERROR, str(error)
        return [self._failure(case, seed, reason, detail) for case in cases]

    async def run(
        self,
        case: Case,
        sequence: base.Sequence,
        seed: int | None = None,
        deadline: float | None = None,
        watch: Watch = unwatched,
    ) -> Outcome:
        """Run one episode on a sequence that the caller opened; the sequence is closed at its end.

        Args:
            case: what to judge.
            sequence: a place in the engine.
            seed: in place of the settings' seed.
            deadline: time of the running event loop by which there must be a verdict; counted from now if None.
            watch: told what happens, as it happens.
        """
        deadline = deadline or asyncio.get_running_loop().time() + self.settings.limits.deadline_s
        started = time.perf_counter()
        seed = self.seed if seed is None else seed
        episode = Episode(self.engine, sequence, self.retriever, self.settings, self.labels, seed, watch)
        verdict: Verdict | None = None
        stop = Stop(StopReason.ANSWERED)
        try:
            async with asyncio.timeout_at(deadline):
                try:
                    await self._write_prompt(episode, case)
                    verdict = await _MODES[self.mode](episode)
                except Stop as ended:
                    stop = ended
                    if self.settings.force_verdict and ended.reason in _FORCEABLE:
                        verdict = await self._force(episode)
        except TimeoutError:
            stop = Stop(StopReason.DEADLINE, "no verdict by the deadline")
        except Stop as ended:  # forcing failed as well
            stop = ended
        except ContextFullError as error:
            stop = Stop(StopReason.CONTEXT_FULL, str(error))
        except EngineError as error:
            stop = Stop(StopReason.ENGINE_ERROR, str(error))
        except Exception as error:
            # One broken case must not take the others of its batch with it; it is reported for what it is.
            logger.exception("case %s: unexpected error", case.id)
            stop = Stop(StopReason.ENGINE_ERROR, f"internal error: {type(error).__name__}")
        finally:
            sequence.close()
        if verdict is not None:
            watch(Decided(verdict.label, verdict.confidence.p_correct, verdict.forced, episode.lap_s()))
        elapsed = (time.perf_counter() - started) * 1000
        read = episode.parser.finish()
        judgment = self._judgment(case, episode, read=read, verdict=verdict, stop=stop, elapsed_ms=elapsed)
        return Outcome(judgment, episode.transcript, read)

    async def _write_prompt(self, episode: Episode, case: Case) -> None:
        # A long text takes seconds, in which others must be served; a short one takes less time than the way to a thread.
        if _characters(case) > _SHORT:
            ids = await asyncio.to_thread(prompt_ids, self.prompt, case, self.engine.tokenizer)
        else:
            ids = prompt_ids(self.prompt, case, self.engine.tokenizer)
        if len(ids) + RESERVE >= self.engine.max_context:
            raise Stop(
                StopReason.PROMPT_TOO_LONG, f"the prompt has {len(ids)} tokens, the context {self.engine.max_context}"
            )
        episode.transcript.add(Author.PROMPT, ids)

    async def _force(self, episode: Episode) -> Verdict:
        """Close what the policy left open and read the verdict that it did not give."""
        left_open = episode.parser.open_tag
        closing = f"\n{left_open.closing}\n" if left_open else "\n"
        episode.force(closing)
        return await episode.force_verdict()

    def _judgment(
        self, case: Case, episode: Episode, *, read: Parse, verdict: Verdict | None, stop: Stop, elapsed_ms: float
    ) -> Judgment:
        transcript = episode.transcript
        p_correct = verdict.confidence.p_correct if verdict else None
        return Judgment(
            id=case.id,
            status=Status.SCORED if verdict else _STATUS[stop.reason],
            verdict=verdict.label if verdict else None,
            p_correct=p_correct,
            p_calibrated=self.calibrated(p_correct),
            label_mass=verdict.confidence.label_mass if verdict else None,
            forced=verdict.forced if verdict else False,
            reasoning="\n\n".join(filter(None, episode.thoughts)),
            searches=episode.searches,
            stop_reason=stop.reason,
            turns=episode.turns,
            format_score=format_score(read) if self.mode == "free" and stop.reason not in OUTSIDE_THE_POLICY else None,
            detail=stop.detail,
            usage=Usage(
                prompt_tokens=transcript.count(Author.PROMPT),
                policy_tokens=transcript.count(Author.POLICY),
                environment_tokens=transcript.count(Author.EVIDENCE, Author.FORCED),
                prefilled_tokens=episode.prefilled,
                cached_tokens=episode.cached,
            ),
            latency_ms=elapsed_ms,
            seed=episode.seed,
            case_digest=case.digest,
            judge_id=self.judge_id,
        )

    def _failure(self, case: Case, seed: int | None, reason: StopReason, detail: str) -> Judgment:
        seed = self.seed if seed is None else seed
        return Judgment.unjudged(case, _STATUS[reason], reason, detail, seed=seed, judge_id=self.judge_id)


def judge_id(engine: Engine, retriever: Retriever, prompt: Prompt, mode: Mode, settings: JudgeSettings) -> str:
    """SHA-256 over all that a judgment depends on: same id, same input, same seed: the same question was asked.

    Deadlines are left out: they decide whether there is a judgment, not which. So is the calibration: it is fitted for an id,
    and changes nothing but what is said beside p(1).
    """
    parts = {
        "engine": engine.describe(),
        "index": retriever.digest,
        "prompt": prompt.digest,
        "mode": mode,
        "parser": PARSER_VERSION,
        "foreign": NEUTRALISE_VERSION,
        "limits": settings.limits.model_dump(exclude={"deadline_s", "turn_timeout_s", "search_timeout_s"}),
        "guided": settings.guided.model_dump() if mode == "guided" else None,
        "sampling": settings.sampling.model_dump(exclude={"seed"}),
        "evidence": [settings.top_k, settings.information_tokens],
        "force_verdict": settings.force_verdict,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _characters(case: Case) -> int:
    question = case.question
    return len(question.text) + sum(map(len, (question.options or {}).values())) + len(case.trace.render())
