"""Coalescing, deadlines, cancellation and fair turns of the judging service, around a real judge."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from serve_fakes import CASE, GatedEngine, OneBook, believes, judge_of, open_engine, until, writes

from configs.settings import JudgeSettings, Limits, PathSettings, ServeSettings, Settings
from retrieval.passage import Hit
from serve.audit_store import AuditStore
from serve.cache import JudgmentCache
from serve.callers import Caller
from serve.errors import ServiceError
from serve.judging import JudgingService
from serve.stores import Stores
from serve.watching import Admitted
from verifier.engines.base import Completion, Generate
from verifier.events import Decided, Opened, Searched, Thought
from verifier.judge import Judge
from verifier.prompt import load_prompt
from verifier.types import Case, Judgment, Status, StopReason

ONE, TWO = Caller("one"), Caller("two")


def case(number: int = 0, name: str = "c") -> Case:
    return Case.model_validate({"id": f"{name}{number}", **CASE, "question": f"What does warfarin inhibit? ({number})"})


def gated(**fields: Any) -> GatedEngine:
    return GatedEngine(writes, believes, **fields)


@asynccontextmanager
async def serving(judge: Judge, **settings: Any) -> AsyncIterator[JudgingService]:
    service = JudgingService(judge, ServeSettings(**settings))
    await service.start()
    yield service
    assert service.idle
    assert service.places.taken == service.places.waiting == 0
    await service.aclose()


def ask(service: JudgingService, *cases: Case, caller: Caller = ONE, **options: Any) -> asyncio.Task[list[Judgment]]:
    return asyncio.create_task(service.judge_all(cases, caller=caller, **options))


# ---- equal cases -----------------------------------------------------------------------------------------------------


async def test_equal_cases_are_one_episode_and_each_asker_has_its_own_id() -> None:
    engine = gated()
    async with serving(judge_of(engine)) as service:
        asking = [ask(service, case(0, name), caller=caller) for name, caller in (("a", ONE), ("b", TWO))]
        asking.append(ask(service, case(0, "c"), case(0, "d"), case(1, "e")))
        await until(lambda: engine.under_way == 2)
        assert service.admission.in_flight == 5
        engine.gate.set()
        found = [judgment for judgments in await asyncio.gather(*asking) for judgment in judgments]
    assert [judgment.id for judgment in found] == ["a0", "b0", "c0", "d0", "e1"]
    assert len({judgment.without_clock().model_copy(update={"id": ""}).model_dump_json() for judgment in found}) == 2
    assert len(engine.sequences) == 2
    assert service.stats.coalesced == 3
    assert service.stats.given == {"scored": 5}


async def test_another_seed_or_content_is_another_episode() -> None:
    engine = gated()
    async with serving(judge_of(engine)) as service:
        asking = [ask(service, case(), seed=seed) for seed in (None, 0, 1)] + [ask(service, case(1))]
        await until(lambda: engine.under_way == 3)  # no seed is the judge's own, 0
        engine.gate.set()
        assert [judgments[0].seed for judgments in await asyncio.gather(*asking)] == [0, 0, 1, 0]


async def test_an_asker_that_leaves_does_not_cancel_the_others_but_the_last_one_does() -> None:
    engine = gated()
    async with serving(judge_of(engine)) as service:
        first, second, third = (ask(service, case()) for _ in range(3))
        await until(lambda: engine.under_way == 1)
        first.cancel()
        second.cancel()
        await asyncio.sleep(0.05)
        assert engine.under_way == 1
        assert service.stats.cancelled == 0
        third.cancel()
        await until(lambda: engine.under_way == 0)
        assert service.stats.cancelled == 1
        assert all(sequence.closed for sequence in engine.sequences)

        # What is asked for next begins anew, also while the old episode is being taken down.
        engine.gate.set()
        fourth = ask(service, case())
        await asyncio.sleep(0)
        fourth.cancel()
        assert (await ask(service, case()))[0].verdict == 1


async def test_a_failure_of_the_shared_episode_is_everybodys() -> None:
    async with serving(judge_of()) as service:
        trouble = case().model_copy(update={"question": case().question.model_copy(update={"text": "trouble"})})
        found = await asyncio.gather(ask(service, trouble), ask(service, trouble))
        assert [judgments[0].status for judgments in found] == [Status.ENGINE_FAILED] * 2


# ---- deadlines -------------------------------------------------------------------------------------------------------


async def test_each_asker_of_one_episode_has_its_own_deadline() -> None:
    engine = gated()
    async with serving(judge_of(engine)) as service:
        patient, hasty = ask(service, case()), ask(service, case(), deadline_s=0.1)
        (given_up,) = await hasty
        assert (given_up.status, given_up.stop_reason) == (Status.TIMEOUT, StopReason.DEADLINE)
        assert given_up.detail == "no verdict within 0.1 s"
        assert given_up.verdict is given_up.p_correct is None
        assert engine.under_way == 1
        engine.gate.set()
        assert (await patient)[0].verdict == 1
    assert service.stats.given == {"timeout": 1, "scored": 1}


async def test_a_patient_asker_outlives_the_episode_of_a_hasty_one() -> None:
    engine = gated()
    async with serving(judge_of(engine)) as service:
        hasty = ask(service, case(), deadline_s=0.1)
        await until(lambda: engine.under_way == 1)
        patient = ask(service, case())  # its episode ends for the other's sake
        assert (await hasty)[0].status is Status.TIMEOUT
        await until(lambda: len(engine.sequences) == 2)
        engine.gate.set()
        assert (await patient)[0].verdict == 1


async def test_a_lone_asker_learns_how_far_its_episode_came() -> None:
    def then_hangs(text: str) -> str:
        return "<think>A thought.</think><search>warfarin</search>"

    engine = gated()
    engine.script = then_hangs

    @dataclass(slots=True)
    class Slow(OneBook):
        async def search(self, query: str, k: int) -> list[Hit]:
            await asyncio.sleep(60)
            raise AssertionError

    judge = Judge(engine, Slow(), load_prompt("judge"), "free", JudgeSettings(force_verdict=False))
    engine.gate.set()
    async with serving(judge) as service:
        (judgment,) = await ask(service, case(), deadline_s=0.2)
    assert judgment.status is Status.TIMEOUT
    assert judgment.reasoning == "A thought."
    assert judgment.turns == 1


async def test_a_case_that_finds_no_place_in_time_ends_as_a_timeout() -> None:
    engine = gated(max_sequences=1)
    async with serving(judge_of(engine)) as service:
        first = ask(service, case(0))
        await until(lambda: engine.under_way == 1)
        (late,) = await ask(service, case(1), deadline_s=0.1)
        assert late.status is Status.TIMEOUT
        assert late.detail == "no place in the engine within 0.1 s"
        engine.gate.set()
        assert (await first)[0].verdict == 1


async def test_an_engine_that_does_not_even_stop_is_left_behind() -> None:
    @dataclass(slots=True)
    class Deaf(GatedEngine):
        async def answer(self, request: Generate) -> Completion:
            while not self.gate.is_set():
                try:
                    await self.gate.wait()
                except asyncio.CancelledError:
                    continue
            return await GatedEngine.answer(self, request)

    engine = Deaf(writes, believes)
    service = JudgingService(judge_of(engine), ServeSettings())
    async with asyncio.timeout(2):
        (judgment,) = await ask(service, case(), deadline_s=0.1)
    assert judgment.status is Status.TIMEOUT
    assert service.places.taken == 1  # as long as it holds on to its place, nobody else has it
    engine.gate.set()
    await until(lambda: service.places.taken == 0)
    await service.aclose()


async def test_a_turn_that_hangs_ends_before_the_request_does() -> None:
    engine = gated()
    judge = judge_of(engine)
    judge.settings = JudgeSettings(limits=Limits(turn_timeout_s=0.1))
    async with serving(judge) as service:
        (judgment,) = await ask(service, case())
    assert judgment.status is Status.TIMEOUT
    assert judgment.detail == "the engine gave no turn within 0.1 s"


# ---- fair turns ------------------------------------------------------------------------------------------------------


async def test_one_callers_pile_does_not_keep_another_waiting() -> None:
    engine = gated(max_sequences=2)
    order = list[str]()

    async def one(number: int, caller: Caller) -> None:
        await service.judge_all([case(number)], caller=caller)
        order.append(caller.name)

    async with serving(judge_of(engine)) as service:
        work = [asyncio.create_task(one(number, ONE)) for number in range(40)]
        await until(lambda: service.places.waiting == 38)
        work += [asyncio.create_task(one(number, TWO)) for number in range(100, 104)]
        await until(lambda: service.places.waiting == 42)
        assert engine.under_way == 2
        engine.gate.set()
        await asyncio.gather(*work)
    assert engine.most == 2
    assert Counter(order[:12])["two"] == 4


async def test_a_case_that_two_ask_for_does_not_wait_in_the_longer_line() -> None:
    engine = gated(max_sequences=1)
    async with serving(judge_of(engine)) as service:
        pile = [ask(service, case(number)) for number in range(20)]
        await until(lambda: service.places.waiting == 19)
        joined = ask(service, case(19), caller=TWO)  # the last of the pile
        await until(lambda: service.stats.coalesced == 1)
        engine.gate.set()
        await joined
        assert sum(task.done() for task in pile) <= 5
        await asyncio.gather(*pile)


async def test_one_slow_search_does_not_hold_the_others() -> None:
    """Six episodes share an engine; one of them waits for its search while the others are judged."""

    @dataclass(slots=True)
    class OneSlow(OneBook):
        gate: asyncio.Event = field(default_factory=asyncio.Event)
        slow: int = 0

        async def search(self, query: str, k: int) -> list[Hit]:
            if query == "slow":
                self.slow += 1
                await self.gate.wait()
            return await OneBook.search(self, query, k)

    def script(text: str) -> str:
        if "[1] Warfarin" in text:
            return "<think>So it is.</think><answer>1</answer>"
        return f"<think>Let me see.</think><search>{'slow' if '(3)' in text else 'quick'}</search>"

    engine, retriever = open_engine(), OneSlow()
    engine.script = script
    judge = Judge(engine, retriever, load_prompt("judge"), "free", JudgeSettings(force_verdict=False))
    async with serving(judge) as service:
        asking = [ask(service, case(number)) for number in range(6)]
        async with asyncio.timeout(5):
            await asyncio.gather(*(task for number, task in enumerate(asking) if number != 3))
        assert retriever.slow == 1
        assert not asking[3].done()
        retriever.gate.set()
        assert (await asking[3])[0].verdict == 1

        retriever.gate.clear()  # in one request, its batch ends with the deadline of the one that waits
        together = await ask(service, *map(case, range(6)), deadline_s=0.3)
        assert Counter(judgment.status for judgment in together) == {Status.SCORED: 5, Status.TIMEOUT: 1}


# ---- the end ---------------------------------------------------------------------------------------------------------


async def test_what_is_under_way_is_finished_while_new_work_is_refused() -> None:
    engine = gated()
    async with serving(judge_of(engine)) as service:
        under_way = ask(service, case())
        await until(lambda: engine.under_way == 1)
        service.begin_drain()
        assert not service.idle
        for refused in (ask(service, case()), ask(service, case(1))):
            with pytest.raises(ServiceError) as error:
                await refused
            assert (error.value.status, error.value.kind) == (503, "draining")
        engine.gate.set()
        assert (await under_way)[0].verdict == 1


async def test_closing_ends_what_is_under_way() -> None:
    engine = gated()
    service = JudgingService(judge_of(engine), ServeSettings())
    asking = ask(service, case())
    await until(lambda: engine.under_way == 1)
    await service.aclose()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert engine.under_way == 0
    assert engine.closed


# ---- watching --------------------------------------------------------------------------------------------------------


async def test_a_watcher_sees_each_step_and_the_judgment_last() -> None:
    async with serving(judge_of()) as service:
        seen = [event async for event in service.watch(case(), caller=ONE)]
    assert list(map(type, seen)) == [Admitted, Opened, Thought, Searched, Thought, Decided, Judgment]
    last = seen[-1]
    assert isinstance(last, Judgment)
    assert last.verdict == 1
    assert last.id == "c0"


async def test_a_watcher_that_comes_late_is_told_what_it_missed() -> None:
    engine = gated()
    async with serving(judge_of(engine)) as service:
        first = ask(service, case())
        await until(lambda: engine.under_way == 1)
        watching = service.watch(case(), caller=TWO)
        assert await anext(watching) == Admitted(in_flight=2)
        assert isinstance(await anext(watching), Opened)
        engine.gate.set()
        rest = [event async for event in watching]
        assert isinstance(rest[-1], Judgment)
        assert await first


async def test_a_watcher_that_leaves_gives_the_case_up() -> None:
    engine = gated()
    async with serving(judge_of(engine)) as service:
        watching = service.watch(case(), caller=ONE)
        await anext(watching)
        await until(lambda: engine.under_way == 1)
        await watching.aclose()
        await until(lambda: engine.under_way == 0)
        service.begin_drain()
        with pytest.raises(ServiceError):
            await anext(service.watch(case(), caller=ONE))


# ---- what is remembered ----------------------------------------------------------------------------------------------


async def test_what_is_known_needs_no_room(tmp_path: Path) -> None:
    engine = gated()
    engine.gate.set()
    settings = Settings(paths=PathSettings(state=tmp_path), serve=ServeSettings(max_queue=4))
    stores = Stores.of(settings)
    service = JudgingService(judge_of(engine), settings.serve, stores)
    await ask(service, case(0), case(1, "a"), caller=ONE)
    engine.gate.clear()
    busy = [ask(service, case(number), caller=Caller()) for number in range(2, 6)]
    await until(lambda: engine.under_way == 4)
    known = await ask(service, case(1, "b"), case(0, "b"), caller=TWO)
    assert [judgment.id for judgment in known] == ["b1", "b0"]
    assert service.stats.cached == 2
    with pytest.raises(ServiceError):
        await ask(service, case(9))
    engine.gate.set()
    await asyncio.gather(*busy)
    mixed = await ask(service, case(0, "m"), case(50, "m"), case(1, "m"), caller=TWO)
    assert [judgment.id for judgment in mixed] == ["m0", "m50", "m1"]
    await service.aclose()
    await stores.aclose()
    assert len(engine.sequences) == 2 + 4 + 1


async def test_a_disk_that_does_not_answer_holds_no_request_beyond_its_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = threading.Event()
    for kind, name in ((JudgmentCache, "_read"), (JudgmentCache, "_insert"), (AuditStore, "write")):
        monkeypatch.setattr(kind, name, lambda *_: stuck.wait(20))
    settings = Settings(paths=PathSettings(state=tmp_path))
    stores = Stores.of(settings)
    service = JudgingService(judge_of(), settings.serve, stores)
    begun = time.monotonic()
    for number in range(3):
        [judgment] = await service.judge_all([case(number)], caller=ONE, deadline_s=1.0)
        assert judgment.status is Status.SCORED  # the cache took a part of the time, not all of it
        assert judgment.judgment_id is None
        assert time.monotonic() - begun < 1.5 * (number + 1)
    stuck.set()
    await service.aclose()
    await stores.aclose()
