"""What the search engine promises to many callers: twins, deadlines, a bound, a cache, and errors to whom they belong."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from retrieval_fakes import FakeEncoder

from retrieval.local import LocalRetriever, _Cache
from retrieval.passage import DeadlineError, Hit, OverloadedError, RetrievalError, UnavailableError
from retrieval.search_queue import Ask, SearchQueue
from retrieval.stats import EngineStats


@pytest.fixture
def retriever(built: Path, encoder: FakeEncoder) -> Iterator[LocalRetriever]:
    opened = LocalRetriever.open(built, encoder, max_waiting=4, max_batch=3, cached_hits=12)
    encoder.batches.clear()
    encoder.busy.clear()
    yield opened
    encoder.gate.set()
    asyncio.run(opened.aclose())


async def hold(encoder: FakeEncoder, retriever: LocalRetriever) -> asyncio.Task[list[Hit]]:
    encoder.gate.clear()
    first = asyncio.create_task(retriever.search("held", 1))
    assert await asyncio.to_thread(encoder.busy.wait, 10)
    return first


async def start(retriever: LocalRetriever, *queries: str, k: int = 2) -> list[asyncio.Task[list[Hit]]]:
    tasks = [asyncio.create_task(retriever.search(query, k)) for query in queries]
    await asyncio.sleep(0)  # each has reached the queue
    return tasks


async def test_twins_are_one_search_also_when_one_of_them_leaves(
    retriever: LocalRetriever, encoder: FakeEncoder
) -> None:
    first = await hold(encoder, retriever)
    working_twin, leaver, stayer = await start(retriever, "held", "drug 1", "drug 1", k=1)
    assert retriever.waiting == 1
    leaver.cancel()
    await asyncio.wait([leaver])
    assert retriever.waiting == 1
    encoder.gate.set()
    assert await working_twin == await first
    assert len(await stayer) == 1
    assert encoder.batches == [["held"], ["drug 1"]]
    assert (retriever.stats.coalesced, retriever.stats.abandoned) == (2, 0)


async def test_whoever_leaves_makes_room_at_once(retriever: LocalRetriever, encoder: FakeEncoder) -> None:
    first = await hold(encoder, retriever)
    tasks = await start(retriever, *(f"drug {number}" for number in range(4)))
    with pytest.raises(OverloadedError, match="4 searches wait and 1 more exceed the limit of 4") as refused:
        await retriever.search("drug 5", 2)
    assert refused.value.retry_after_s >= 1
    for task in tasks[:3]:
        task.cancel()
    await asyncio.wait(tasks[:3])
    assert (retriever.waiting, retriever.stats.abandoned, retriever.stats.refused) == (1, 3, 1)
    with pytest.raises(OverloadedError):
        await retriever.search_many([f"drug {number}" for number in range(6, 10)], 2)
    assert retriever.waiting == 1  # all or nothing
    late = await start(retriever, "drug 3", "drug 3", "drug 6")  # twins of what waits need no room
    encoder.gate.set()
    await asyncio.gather(first, tasks[3], *late)
    assert encoder.batches == [["held"], ["drug 3", "drug 6"]]


async def test_a_passed_deadline_is_an_error_and_no_work(retriever: LocalRetriever, encoder: FakeEncoder) -> None:
    first = await hold(encoder, retriever)
    patient = await start(retriever, "drug 1")
    with pytest.raises(DeadlineError, match=r"0\.02 s"):
        await retriever.search_many(["drug 1", "drug 2"], 2, deadline_s=0.02)
    assert (retriever.waiting, retriever.stats.late) == (1, 1)  # what the patient one wants stays
    encoder.gate.set()
    await asyncio.gather(first, *patient)
    assert encoder.batches == [["held"], ["drug 1"]]
    encoder.gate.clear()
    with pytest.raises(DeadlineError):
        await retriever.search_many(["in work"], 2, deadline_s=0.02)


async def test_answers_are_remembered_by_query_and_k(retriever: LocalRetriever, encoder: FakeEncoder) -> None:
    once = await retriever.search("drug 1", 3)
    assert await retriever.search("drug 1", 3) == once
    assert await retriever.search("drug 1", 2) == once[:2]
    assert encoder.batches == [["drug 1"]] * 2
    assert (retriever.stats.searches, retriever.stats.cached) == (3, 1)
    once.clear()  # a caller's list is its own
    assert len(await retriever.search("drug 1", 3)) == 3
    await retriever.search_many(["drug 1"], 3, cached=False)
    assert encoder.batches == [["drug 1"]] * 3
    many = await retriever.search_many(["drug 2", "drug 1"], 3)
    assert many[1][0].passage.title == "Drug 1"
    assert encoder.batches[-1] == ["drug 2"]


async def test_the_cache_holds_so_many_passages(retriever: LocalRetriever, encoder: FakeEncoder) -> None:
    for number in range(4):  # 3 passages each, and one for the query: 12 fit
        await retriever.search(f"drug {number}", 3)
    encoder.batches.clear()
    await retriever.search_many([f"drug {number}" for number in (3, 2, 1)], 3)
    assert encoder.batches == []
    await retriever.search("drug 0", 3)
    await retriever.search("drug 3", 3)  # the one used longest ago
    assert encoder.batches == [["drug 0"], ["drug 3"]]
    assert len(await retriever.search("drug", 100)) == 100  # more than it holds: not kept
    encoder.batches.clear()
    await retriever.search("drug", 100)
    assert encoder.batches == [["drug"]]


def test_the_cache_is_bounded_whatever_the_answers_are() -> None:
    """Answers without a hit, and long queries, take room as well."""
    cache = _Cache(100)
    for number in range(1000):
        cache.put(("d", "p", str(number), 3), ())
    assert len(cache) == 100
    for number in range(1000):
        cache.put(("d", "p", str(number) + "x" * 9_900, 3), ())
    assert len(cache) == 10
    off = _Cache(0)
    off.put(("d", "p", "q", 3), ())
    assert len(off) == 0
    assert off.get(("d", "p", "q", 3)) is None


async def test_a_cache_that_is_switched_off(built: Path, encoder: FakeEncoder) -> None:
    retriever = LocalRetriever.open(built, encoder, cached_hits=0)
    encoder.batches.clear()
    for _ in range(2):
        await retriever.search("drug 1", 3)
    assert len(encoder.batches) == 2
    await retriever.aclose()


async def test_an_error_belongs_to_the_query_that_caused_it(built: Path, encoder: FakeEncoder) -> None:
    retriever = LocalRetriever.open(built, encoder)
    first = await hold(encoder, retriever)
    queries = [f"drug {number}" for number in range(16)]
    tasks = await start(retriever, *queries[:9], "poison", *queries[9:])
    both = asyncio.create_task(retriever.search_many(["drug 3", "poison"], 2))
    await asyncio.sleep(0)
    encoder.gate.set()
    await first
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [number for number, result in enumerate(results) if isinstance(result, BaseException)] == [9]
    with pytest.raises(RetrievalError, match="poisoned"):
        await both
    assert len(encoder.batches) < 2 * 5 + 2  # halves, not one by one
    assert retriever.stats.failed == 1
    assert await retriever.search("drug 3", 2)
    await retriever.aclose()
    with pytest.raises(UnavailableError, match="closed"):
        await retriever.search("drug 99", 2)


async def test_stages_and_batches_are_counted(retriever: LocalRetriever) -> None:
    await retriever.search_many([f"drug {number}" for number in range(4)], 2)
    stats = retriever.stats
    assert {name: histogram.count for name, histogram in stats.stages.items()} == {
        "queue": 4,
        "rank": 2,
        "read": 2,
        "encode": 2,
        "search": 2,
        "widen": 0,
        "scan": 0,
    }
    assert (stats.batch_size.count, stats.batch_size.sum) == (2, 4)
    assert stats.batch_size.cumulative()[:3] == [(1, 1), (2, 1), (4, 2)]
    assert stats.batch_size.cumulative()[-1] == (float("inf"), 2)


class Panic(BaseException):
    """As what a tokenizer written in Rust panics with: no Exception."""


async def test_a_panic_belongs_to_the_query_that_caused_it_and_the_next_are_answered() -> None:
    def work(asks: list[Ask]) -> list[int]:
        if ("panic", 1) in asks:
            raise Panic("index out of bounds")
        return [len(query) for query, _ in asks]

    queue = SearchQueue[int](work, max_waiting=9, max_batch=9, stats=EngineStats())
    results = await asyncio.gather(queue.ask(["ab"], 1), queue.ask(["panic"], 1), return_exceptions=True)
    assert results[0] == [2]
    assert isinstance(results[1], RetrievalError)
    assert isinstance(results[1].__cause__, Panic)
    assert await queue.ask(["abc"], 1) == [3]
    queue.close()


async def test_answers_that_are_too_few_are_an_error() -> None:
    queue = SearchQueue[int](lambda _: [], max_waiting=9, max_batch=9, stats=EngineStats())
    with pytest.raises(RetrievalError, match="1 searches were answered with 0 results"):
        await queue.ask(["a"], 1)
    queue.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_nobody_waits_for_a_thread_that_has_died() -> None:
    """A fault of the queue's own, which no search can be blamed for."""
    stats = EngineStats()
    del stats.stages["queue"]
    queue = SearchQueue[int](lambda asks: [0] * len(asks), max_waiting=9, max_batch=1, stats=stats)
    results = await asyncio.gather(queue.ask(["a"], 1), queue.ask(["b"], 1), return_exceptions=True)
    for result in results:
        assert isinstance(result, UnavailableError)
        assert "the search thread has died" in str(result)
    with pytest.raises(UnavailableError, match="the search thread has died"):
        await queue.ask(["c"], 1)
    queue.close()


async def test_each_caller_has_an_error_of_its_own() -> None:
    def work(_: list[Ask]) -> list[int]:
        raise OverloadedError("no room", 7.5) from KeyError("why")

    queue = SearchQueue[int](work, max_waiting=9, max_batch=9, stats=EngineStats())
    one, two = await asyncio.gather(queue.ask(["a"], 1), queue.ask(["a"], 1), return_exceptions=True)
    queue.close()
    for error in (one, two):
        assert isinstance(error, OverloadedError)
        assert (str(error), error.retry_after_s) == ("no room", 7.5)
        assert isinstance(error.__cause__, KeyError)
    assert one is not two


async def test_nothing_is_tried_again_for_callers_that_have_left() -> None:
    tried, entered, gate = list[list[str]](), threading.Event(), threading.Event()

    def work(asks: list[Ask]) -> list[int]:
        queries = [query for query, _ in asks]
        tried.append(queries)
        entered.set()
        gate.wait(10)
        if len(queries) > 1:
            raise MemoryError
        return [len(query) for query in queries]

    stats = EngineStats()
    queue = SearchQueue[int](work, max_waiting=9, max_batch=9, stats=stats)
    held = asyncio.create_task(queue.ask(["held"], 1))
    assert await asyncio.to_thread(entered.wait, 10)
    stays, *leave = [asyncio.create_task(queue.ask([query], 1)) for query in ("ab", "left", "gone")]
    await asyncio.sleep(0)
    entered.clear()
    gate.set()
    gate.clear()
    assert await held == [4]
    assert await asyncio.to_thread(entered.wait, 10)
    for task in leave:
        task.cancel()
    await asyncio.wait(leave)
    gate.set()
    assert await stays == [2]
    assert await queue.ask(["left"], 1) == [4]
    assert tried == [["held"], ["ab", "left", "gone"], ["ab"], ["left"]]
    assert stats.abandoned == 2
    queue.close()
