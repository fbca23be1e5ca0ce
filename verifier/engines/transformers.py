"""The embedded engine: a causal language model in this process, its batch shared by all open episodes.

One thread owns the model. Episodes put generations into a queue; at every step the thread takes all that can run, computes
their new tokens in one forward pass (prompts and single tokens together), draws one token for each and goes on. Keys and
values stay in the episode's slot between turns, so a turn costs only its new tokens, and what sequences have in common, such
as the question of several traces, is computed by the first of them and copied by the others.
"""

import asyncio
import math
import os
import threading
from collections import deque
from collections.abc import AsyncIterator, Mapping
from collections.abc import Sequence as Ids
from concurrent.futures import Future, InvalidStateError
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

# Before torch loads: on a busy machine, threads that spin while they wait make a step fifty times as slow.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch

from configs.adapter import Adapter
from configs.settings import TransformersEngine as EngineSettings
from verifier.engines.base import Completion, ContextFullError, EngineError, Finish, Generate, Sequence
from verifier.engines.model_loading import load_model, pick_device, pick_dtype, replace_weights
from verifier.engines.sampling import sample
from verifier.engines.slots import Prefix, Slots, Span, StepPlan
from verifier.engines.tokenizer import HFTokenizer

_WORTH_COPYING = 32  # tokens of shared text from which on copying, or waiting for a copy, beats computing


@dataclass(eq=False, slots=True)
class _Job:
    """A generation under way."""

    request: Generate
    prompt: list[int]
    place: "_Place"
    random: torch.Generator
    future: Future[Completion] = field(default_factory=Future)
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    watched: list[tuple[float, ...]] = field(default_factory=list)
    pending: list[int] = field(default_factory=list)  # tokens that the model has yet to see
    cached: int = -1  # tokens taken from the slot; -1 until the job was looked at
    prefilled: int = 0


@dataclass(eq=False, slots=True)
class _Gang:
    """Places that were opened together and advance together."""

    places: "list[_Place]" = field(default_factory=list)

    def ready(self) -> bool:
        """Whether all want something. A generation that is over counts for nothing, even before its caller has noticed."""
        jobs = [place.job for place in self.places if not place.closed]
        return all(job is not None and not job.future.done() for job in jobs)


@dataclass(eq=False, slots=True)
class _Place:
    """A sequence's place: its slot and what is in it."""

    engine: "TransformersEngine"
    slot: int
    gang: _Gang
    ids: list[int] = field(default_factory=list)  # tokens whose keys and values the slot holds
    job: _Job | None = None
    closed: bool = False

    async def generate(self, request: Generate) -> Completion:
        return await self.engine._submit(self, request)

    def close(self) -> None:
        self.engine._release(self)


class TransformersEngine:
    """Continuous batching over the slots of one model. Implements `base.Engine`."""

    def __init__(
        self, path: Path, digest: str, settings: EngineSettings | None = None, adapter: Adapter | None = None
    ) -> None:
        """Load a model folder (safetensors, tokenizer, config).

        Args:
            path: the folder.
            digest: SHA-256 of its weights, as the catalogue gives it; part of the judge's id.
            adapter: added to the weights, with peft.

        Raises:
            EngineError: the folder cannot be loaded, its attention is of a kind that slots cannot hold, or the adapter does not
                fit it.
        """
        settings = settings or EngineSettings()
        self.device = pick_device(settings.device)
        self.dtype = pick_dtype(settings.dtype, self.device)
        self.path = path
        self._digest = digest
        self.adapter = adapter
        self._settings = settings
        self._model, self._tokenizer = load_model(
            path, self.dtype, self.device, settings.max_context, adapter.folder if adapter else None
        )
        config = self._model.config
        limit = getattr(config, "max_position_embeddings", None)
        self.max_context = min(settings.max_context, limit) if limit else settings.max_context
        self.max_sequences = settings.max_sequences
        self._slots = Slots(config, self.max_sequences, self.max_context, self.dtype, self.device)
        self._prefixes: list[Prefix] = []
        self._free = list(range(self.max_sequences))
        self._open: list[_Place] = []
        self._waiting: deque[tuple[int, Future[list[_Place]]]] = deque()
        self._closing = False
        self._work = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="medverify-engine", daemon=True)
        self._thread.start()

    @property
    def tokenizer(self) -> HFTokenizer:
        return self._tokenizer

    def describe(self) -> dict[str, str | int | float]:
        return {
            "engine": "transformers",
            "weights": self._digest,
            "dtype": str(self.dtype).removeprefix("torch."),
            "device": self.device.type,
            "max_context": self.max_context,
            # What is computed together decides the last bits of what comes out.
            "max_sequences": self.max_sequences,
            "step_tokens": self._settings.step_tokens,
            **({"adapter": self.adapter.digest} if self.adapter else {}),
        }

    @asynccontextmanager
    async def open(self, count: int = 1) -> AsyncIterator[list[Sequence]]:
        if not 1 <= count <= self.max_sequences:
            raise EngineError(
                f"cannot open {count} sequences at once: the engine has {self.max_sequences} (max_sequences)"
            )
        granted: Future[list[_Place]] = Future()
        with self._work:
            self._check_open()
            self._waiting.append((count, granted))
            self._grant()
        try:
            places = await asyncio.wrap_future(granted)
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():  # the places came at the very moment the caller left
                for place in granted.result():
                    place.close()
            raise
        try:
            yield list(places)
        finally:
            for place in places:
                place.close()

    async def preload(self, ids: Ids[int]) -> None:
        """Compute a text that many sequences start with once, by itself; from now on they copy it."""
        with self._work:
            if any(prefix.ids == list(ids) for prefix in self._prefixes):
                return
        async with self.open() as (sequence,):
            await sequence.generate(Generate(ids, max_tokens=1))
            place = next(place for place in self._open if place is sequence)
            with self._work:
                self._prefixes.append(self._slots.save_prefix(place.slot, ids))

    def load_weights(self, weights: Mapping[str, torch.Tensor], digest: str) -> None:
        """Take other weights, as a trainer does between two steps. What was computed with the old ones is forgotten.

        Args:
            weights: by the names of the model's `state_dict`, in any precision.
            digest: what tells these weights from others; part of the judge's id.

        Raises:
            EngineError: an episode is under way, or the weights are another model's.
        """
        with self._work:
            if self._open:
                raise EngineError(f"{len(self._open)} episodes are under way: their weights cannot be exchanged")
            self._prefixes.clear()
            replace_weights(self._model, weights)
            self._digest = digest

    async def aclose(self) -> None:
        with self._work:
            self._closing = True
            self._work.notify_all()
        await asyncio.to_thread(self._thread.join)

    # ---- called by episodes, on any thread ---------------------------------------------------------------------------

    async def _submit(self, place: _Place, request: Generate) -> Completion:
        if request.max_tokens < 1 or not request.ids:
            raise EngineError("a generation needs at least one id to continue and one token to write")
        if len(request.ids) >= self.max_context:
            raise ContextFullError(f"{len(request.ids)} tokens leave no room in a context of {self.max_context}")
        random = torch.Generator(self.device)
        # Each turn of an episode draws its own numbers, and the same ones wherever it stands in a batch.
        random.manual_seed((request.seed * 1_000_003 + len(request.ids)) % 2**63)
        job = _Job(request, list(request.ids), place, random)
        with self._work:
            self._check_open()
            if place.closed or place.job is not None:
                raise EngineError("the sequence is closed or busy: one generation at a time")
            place.job = job
            self._work.notify_all()
        try:
            return await asyncio.wrap_future(job.future)
        finally:
            with self._work:
                place.job = None
                self._work.notify_all()

    def _release(self, place: _Place) -> None:
        with self._work:
            if place.closed:
                return
            place.closed = True
            if place.job is not None:
                place.job.future.cancel()
            self._open.remove(place)
            self._free.append(place.slot)
            self._free.sort()  # the lowest slots first: open ones stay neighbours
            self._grant()
            self._work.notify_all()

    def _grant(self) -> None:
        """Hand out free slots in order of arrival. Holds the lock."""
        while self._waiting:
            count, granted = self._waiting[0]
            if granted.cancelled():
                self._waiting.popleft()
                continue
            if count > len(self._free):
                return
            self._waiting.popleft()
            gang = _Gang()
            gang.places = [_Place(self, self._free.pop(0), gang) for _ in range(count)]
            try:
                granted.set_result(gang.places)
            except InvalidStateError:  # cancelled in between
                self._free = sorted([*self._free, *(place.slot for place in gang.places)])
                continue
            self._open += gang.places

    def _check_open(self) -> None:
        if self._closing:
            raise EngineError("the engine is closed")

    # ---- the engine's own thread -------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._work:
                self._work.wait_for(lambda: self._closing or bool(self._runnable()))
                jobs = self._runnable()
                if self._closing:
                    self._abandon_all()
                    return
            try:
                self._step(jobs)
            except Exception as error:  # noqa: BLE001 - the owner thread must outlive any fault; the callers are told
                for job in jobs:
                    _settle(job, EngineError(f"the model failed: {type(error).__name__}: {error}"))

    def _runnable(self) -> list[_Job]:
        """Generations that can advance now, by slot. Holds the lock."""
        places = sorted((place for place in self._open if place.gang.ready()), key=lambda place: place.slot)
        return [place.job for place in places if place.job is not None and not place.job.future.done()]

    def _abandon_all(self) -> None:
        for place in self._open:
            if place.job is not None:
                _settle(place.job, EngineError("the engine was closed"))
        for _, granted in self._waiting:
            with suppress(InvalidStateError):
                granted.set_exception(EngineError("the engine was closed"))

    @torch.inference_mode()
    def _step(self, jobs: list[_Job]) -> None:
        """One forward pass: every job gets its next token, or, while its prompt is long, a part of the prompt computed."""
        jobs = self._started(jobs)
        decoding = [job for job in jobs if len(job.pending) == 1]
        prefilling, counts, room = [], [], max(1, self._settings.step_tokens - len(decoding))
        for job in jobs:
            if len(job.pending) > 1 and room > 0:
                prefilling.append(job)
                counts.append(min(room, len(job.pending)))
                room -= counts[-1]
        plan = StepPlan(
            [Span(job.place.slot, len(job.place.ids), 1) for job in decoding],
            [Span(job.place.slot, len(job.place.ids), count) for job, count in zip(prefilling, counts, strict=True)],
            self.device,
        )
        batch = [*decoding, *prefilling]
        taken = [job.pending[: span.count] for job, span in zip(batch, plan.spans, strict=True)]
        logits_NV = self._model(
            input_ids=torch.tensor([[token for tokens in taken for token in tokens]], device=self.device),
            position_ids=plan.positions_1T,
            use_cache=False,
            logits_to_keep=plan.last_N,
            slots=self._slots,
            plan=plan,
        ).logits[0].float()  # fmt: skip
        best_N, tokens_N = logits_NV.max(-1)  # a NaN anywhere in a row is its maximum
        drawn = zip(tokens_N.tolist(), best_N.tolist(), logits_NV.logsumexp(-1).tolist(), logits_NV, strict=True)
        for job, tokens, (token, best, total, logits_V) in zip(batch, taken, drawn, strict=True):
            job.place.ids += tokens
            if not math.isfinite(best):
                # Nothing of it may stay: even masked out, NaN would spoil the attention of the slot's next owner.
                self._slots.clear(job.place.slot, len(job.place.ids))
                job.place.ids.clear()
                _settle(job, EngineError("the model gave logits that are not numbers"))
                continue
            job.pending = job.pending[len(tokens) :]
            if not job.pending:
                self._advance(job, (token, best - total), logits_V, total)

    def _started(self, jobs: list[_Job]) -> list[_Job]:
        """The jobs that compute in this step: all but those that wait for one before them to compute what they share."""
        with self._work:
            places = list(self._open)
        started: list[_Job] = []
        for job in jobs:
            if job.cached < 0:
                wanted = job.prompt[:-1]  # the last token is always computed, for its logits
                source, known = self._best_source(job.place, wanted, places)
                ahead = (other.prompt for other in started if len(other.pending) > 1)
                if max((shared_length(ids, wanted) for ids in ahead), default=0) >= known + _WORTH_COPYING:
                    continue
                self._begin(job, source, known)
            started.append(job)
        return started

    def _best_source(self, place: _Place, wanted: list[int], places: list[_Place]) -> tuple[_Place | Prefix, int]:
        """Who holds the longest part of `wanted`: the sequence itself, a preloaded prefix, or another sequence."""
        source: _Place | Prefix = place
        known = shared_length(place.ids, wanted)
        others: list[_Place | Prefix] = [*self._prefixes, *places]
        for other in others:
            shared = shared_length(other.ids, wanted)
            if shared >= known + _WORTH_COPYING:
                source, known = other, shared
        return source, known

    def _begin(self, job: _Job, source: _Place | Prefix, known: int) -> None:
        place, ids = job.place, job.prompt
        if isinstance(source, Prefix):
            self._slots.load_prefix(place.slot, source, known)
        elif source is not place:
            self._slots.copy(source.slot, place.slot, known)
        place.ids = ids[:known]
        job.cached, job.prefilled, job.pending = known, len(ids) - known, ids[known:]

    def _advance(self, job: _Job, greedy: tuple[int, float], logits_V: torch.Tensor, total: float) -> None:
        """Give the job its next token; `total` is the logarithm of the sum of the exponentials of the logits."""
        request = job.request
        if request.temperature == 0:
            token, logprob = greedy
        else:
            token, logprob = sample(logits_V, request.temperature, request.top_p, job.random)
        job.ids.append(token)
        job.logprobs.append(logprob)
        job.watched.append(tuple(float(logits_V[watched]) - total for watched in request.watch))
        finish = self._finish(job, token)
        if finish is None:
            job.pending = [token]
        else:
            _settle(job, finish)

    def _finish(self, job: _Job, token: int) -> Finish | None:
        request = job.request
        if token in self._tokenizer.end_ids:
            return Finish.END
        if request.stop:
            longest = max(map(len, request.stop))
            # Every token of a stop string is at least a character, so it lies within the last tokens if it is new.
            tail = self._tokenizer.decode(job.ids[-longest - 1 :])
            if any(stop in tail for stop in request.stop):
                return Finish.STOP
        if len(job.ids) == request.max_tokens:
            return Finish.LENGTH
        if len(request.ids) + len(job.ids) >= self.max_context:
            return Finish.CONTEXT
        return None


def shared_length(first: list[int], second: list[int]) -> int:
    """Length of the longest common prefix; compares slices, so that long texts cost little."""
    low, high = 0, min(len(first), len(second))
    if first[:high] == second[:high]:
        return high
    while high - low > 1:  # equal up to `low`, different before `high`
        middle = (low + high) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle
    return low


def _settle(job: _Job, outcome: Finish | EngineError) -> None:
    with suppress(InvalidStateError):  # the caller may have left
        if isinstance(outcome, EngineError):
            job.future.set_exception(outcome)
        else:
            job.future.set_result(
                Completion(tuple(job.ids), tuple(job.logprobs), tuple(job.watched), outcome, job.prefilled, job.cached)
            )
