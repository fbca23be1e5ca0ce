import asyncio
import shutil
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from retrieval_fakes import SPEC, FakeEncoder, embed, passages

from retrieval.build import build_index
from retrieval.encoder import Vectors
from retrieval.local import LocalRetriever
from retrieval.manifest import Manifest
from retrieval.passage import Hit, IndexCorruptError, IndexMismatchError, QueryError, RetrievalError, Retriever
from retrieval.sources import starter


@pytest.fixture
def retriever(built: Path, encoder: FakeEncoder) -> Iterator[LocalRetriever]:
    opened = LocalRetriever.open(built, encoder)
    encoder.batches.clear()
    encoder.busy.clear()
    yield opened
    encoder.gate.set()
    asyncio.run(opened.aclose())


def expected(query: str, k: int) -> list[tuple[str, float, int]]:
    """Brute force."""
    scored = [(p.id, float(embed(f"{p.title} {p.text}") @ embed(query))) for p in passages()]
    best = sorted(range(len(scored)), key=lambda row: (-scored[row][1], row))[:k]
    return [(*scored[row], rank) for rank, row in enumerate(best, start=1)]


def plain(hits: list[Hit]) -> list[tuple[str, float, int]]:
    return [(hit.passage.id, hit.score, hit.rank) for hit in hits]


async def hold(encoder: FakeEncoder, retriever: LocalRetriever) -> asyncio.Task[list[Hit]]:
    """Start a search and hold the worker in the middle of encoding it."""
    encoder.gate.clear()
    first = asyncio.create_task(retriever.search("drug 0", 1))
    assert await asyncio.to_thread(encoder.busy.wait, 10)
    return first


async def test_hits_are_those_of_brute_force(retriever: LocalRetriever, built: Path) -> None:
    contract: Retriever = retriever
    for query, k in (("drug 17 lowers", 3), ("marker", 10), ("nothing known", 1)):
        assert plain(await contract.search(query, k)) == expected(query, k)
    assert contract.digest == Manifest.load(built).digest


async def test_k_beyond_the_index_gives_every_passage_once(retriever: LocalRetriever) -> None:
    hits = await retriever.search("drug", 10_000)
    assert sorted(hit.passage.id for hit in hits) == sorted(passage.id for passage in passages())


async def test_search_many_keeps_the_order(retriever: LocalRetriever) -> None:
    queries = [f"drug {number}" for number in (5, 250, 5, 17)]
    found = await retriever.search_many(queries, 2)
    assert [plain(hits) for hits in found] == [expected(query, 2) for query in queries]
    assert await retriever.search_many([], 3) == []


@pytest.mark.parametrize(
    ("query", "complaint"),
    [
        ("", "empty"),
        (" \n\t ", "empty"),
        ("\u200b\ufeff \u2060\x00", "empty"),
        ("\u2800", "empty"),  # a Braille cell without dots
        ("\u3164 \u115f\u1160\uffa0", "empty"),  # Hangul fillers
        ("\u0301", "empty"),  # accents without a letter
        ("\u20dd\ufe0f", "empty"),
        (None, "NoneType; expected a string"),
        (b"fever", "bytes; expected a string"),
        ("x" * 10_001, "10001 characters"),
        ("\ud800", "not valid Unicode"),
    ],
)
async def test_unusable_queries(retriever: LocalRetriever, encoder: FakeEncoder, query: str, complaint: str) -> None:
    with pytest.raises(QueryError, match=complaint):
        await retriever.search(query, 3)
    with pytest.raises(QueryError, match=complaint):
        await retriever.search_many(["fine", query], 3)
    assert encoder.batches == []


async def test_k_below_one_and_the_longest_query(retriever: LocalRetriever) -> None:
    with pytest.raises(QueryError, match="k is 0"):
        await retriever.search("fever", 0)
    assert len(await retriever.search("x" * 10_000, 3)) == 3


async def test_what_arrives_during_a_batch_is_the_next_batch(retriever: LocalRetriever, encoder: FakeEncoder) -> None:
    first = await hold(encoder, retriever)
    others = [asyncio.create_task(retriever.search(f"drug {number}", 1 + number % 4)) for number in range(40)]
    twin = asyncio.create_task(retriever.search("drug 3", 2))
    await asyncio.sleep(0.05)
    assert not first.done()  # and this loop runs on while the worker is held
    encoder.gate.set()
    results = await asyncio.gather(*others)
    assert plain(await first) == expected("drug 0", 1)
    assert [plain(hits) for hits in results] == [expected(f"drug {n}", 1 + n % 4) for n in range(40)]
    assert plain(await twin) == expected("drug 3", 2)
    assert encoder.batches == [
        ["drug 0"],
        [f"drug {number}" for number in range(1, 40)],
    ]  # the twins are not encoded again


async def test_texts_are_read_only_as_far_as_somebody_asked(
    retriever: LocalRetriever, encoder: FakeEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await hold(encoder, retriever)
    read = list[int]()
    passage = retriever._passage
    monkeypatch.setattr(retriever, "_passage", lambda row: (read.append(row), passage(row))[1])
    asked = [("drug 1", 2), ("drug 2", 40), ("drug 1", 3)]
    tasks = [asyncio.create_task(retriever.search(query, k)) for query, k in asked]
    await asyncio.sleep(0.05)
    encoder.gate.set()
    await first
    assert [plain(hits) for hits in await asyncio.gather(*tasks)] == [expected(query, k) for query, k in asked]
    assert len(read) == 1 + 3 + 40


async def test_batches_are_bounded(retriever: LocalRetriever, encoder: FakeEncoder) -> None:
    first = await hold(encoder, retriever)
    others = [asyncio.create_task(retriever.search(f"drug {number}", 1)) for number in range(300)]
    await asyncio.sleep(0.05)
    encoder.gate.set()
    await asyncio.gather(first, *others)
    assert [len(batch) for batch in encoder.batches] == [1, 256, 43]  # one of them was in work already


async def test_cancelled_callers_cost_nothing(retriever: LocalRetriever, encoder: FakeEncoder) -> None:
    first = await hold(encoder, retriever)
    others = [asyncio.create_task(retriever.search(f"drug {number}", 1)) for number in range(10)]
    await asyncio.sleep(0.05)
    for task in [first, *others[::2]]:
        task.cancel()
    await asyncio.wait([first, *others[::2]])  # the cancellation has reached the queue before the worker goes on
    encoder.gate.set()
    results = await asyncio.gather(*others, return_exceptions=True)
    assert all(isinstance(result, asyncio.CancelledError) for result in results[::2])
    assert [plain(hits) for hits in results[1::2] if isinstance(hits, list)] == [
        expected(f"drug {number}", 1) for number in range(1, 10, 2)
    ]
    assert encoder.batches[1:] == [[f"drug {number}" for number in range(1, 10, 2)]]


async def test_a_deadline_frees_the_caller_at_once(retriever: LocalRetriever, encoder: FakeEncoder) -> None:
    first = await hold(encoder, retriever)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await retriever.search("drug 1", 1)
    encoder.gate.set()
    await first


async def test_one_bad_query_fails_only_its_own_caller(retriever: LocalRetriever, encoder: FakeEncoder) -> None:
    first = await hold(encoder, retriever)
    queries = ["drug 1", "poison", "nan", "drug 2"]
    tasks = [asyncio.create_task(retriever.search(query, 2)) for query in queries]
    await asyncio.sleep(0.05)
    encoder.gate.set()
    await first
    good, poisoned, not_finite, also_good = await asyncio.gather(*tasks, return_exceptions=True)
    assert [plain(hits) for hits in (good, also_good) if isinstance(hits, list)] == [
        expected("drug 1", 2),
        expected("drug 2", 2),
    ]
    assert isinstance(poisoned, RetrievalError)
    assert isinstance(poisoned.__cause__, MemoryError)
    assert isinstance(not_finite, RetrievalError)
    assert "NaN" in str(not_finite)


async def test_closing_fails_what_waits_and_finishes_what_runs(retriever: LocalRetriever, encoder: FakeEncoder) -> None:
    first = await hold(encoder, retriever)
    waiting = asyncio.create_task(retriever.search("drug 1", 1))
    await asyncio.sleep(0.05)
    closing = [asyncio.create_task(retriever.aclose()) for _ in range(2)]
    with pytest.raises(RetrievalError, match="closed"):
        await waiting
    encoder.gate.set()
    await asyncio.gather(*closing)
    assert plain(await first) == expected("drug 0", 1)
    await retriever.aclose()
    with pytest.raises(RetrievalError, match="closed"):
        await retriever.search("drug 1", 1)


def test_one_event_loop_after_another(retriever: LocalRetriever) -> None:
    for number in range(3):
        assert plain(asyncio.run(retriever.search(f"drug {number}", 2))) == expected(f"drug {number}", 2)


def test_a_loop_that_ends_early_leaves_the_retriever_usable(retriever: LocalRetriever, encoder: FakeEncoder) -> None:
    async def abandon() -> None:
        await hold(encoder, retriever)  # asyncio.run cancels the search as it ends

    asyncio.run(abandon())
    encoder.gate.set()
    assert plain(asyncio.run(retriever.search("drug 1", 1))) == expected("drug 1", 1)


def test_many_threads_with_a_loop_each(retriever: LocalRetriever) -> None:
    wrong: list[str] = []

    async def work(offset: int) -> None:
        queries = [f"drug {(offset + number) % 300} marker {number}" for number in range(20)]
        for query, hits in zip(queries, await asyncio.gather(*(retriever.search(q, 3) for q in queries)), strict=True):
            if plain(hits) != expected(query, 3):
                wrong.append(query)

    threads = [threading.Thread(target=asyncio.run, args=(work(50 * number),)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_another_encoder_is_refused(built: Path) -> None:
    for change in ({"pooling": "cls"}, {"query_max_tokens": 512}):
        with pytest.raises(IndexMismatchError, match=next(iter(change))):
            LocalRetriever.open(built, FakeEncoder(SPEC.model_copy(update=change)))


@pytest.mark.parametrize("name", ["vectors/00000.npy", "offsets.npy", "passages.jsonl", "manifest.json"])
def test_damage_is_noticed_when_opening(built: Path, tmp_path: Path, encoder: FakeEncoder, name: str) -> None:
    folder = Path(shutil.copytree(built, tmp_path / "copy"))
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 4
    (folder / name).write_bytes(content)
    with pytest.raises((IndexCorruptError, IndexMismatchError)) as error:
        LocalRetriever.open(folder, encoder)
    assert isinstance(error.value, IndexCorruptError)
    assert name in str(error.value)


def test_an_index_that_is_replaced_while_it_is_opened_is_refused(
    built: Path, tmp_path: Path, encoder: FakeEncoder
) -> None:
    folder = Path(shutil.copytree(built, tmp_path / "copy"))
    manifest = Manifest.load(folder)

    class Slow(FakeEncoder):
        """Encodes its first query while another build is put in the index's place."""

        def encode_queries(self, queries: Sequence[str]) -> Vectors:
            manifest.model_copy(update={"created_by": "another build"}).save(folder)
            return super().encode_queries(queries)

    with pytest.raises(IndexMismatchError, match="replaced while it was opened"):
        LocalRetriever.open(folder, Slow())
    opened = LocalRetriever.open(folder, encoder)
    assert opened.manifest
    assert opened.manifest.digest == opened.digest == Manifest.load(folder).digest
    asyncio.run(opened.aclose())


def test_rows_that_do_not_fit_together(built: Path, tmp_path: Path, encoder: FakeEncoder) -> None:
    """Files that each match their checksum, from two indexes."""
    folder = Path(shutil.copytree(built, tmp_path / "copy"))
    other = build_index(passages(10), encoder, tmp_path / "other")
    shutil.copy(tmp_path / "other" / "vectors/00000.npy", folder / "vectors")
    manifest = Manifest.load(folder)
    files = manifest.files | {"vectors/00000.npy": other.files["vectors/00000.npy"]}
    manifest.model_copy(update={"files": files}).save(folder)
    with pytest.raises(IndexCorruptError, match=r"expected float32 \[300, 16\] in C order, found float32 \[10, 16\]"):
        LocalRetriever.open(folder, encoder)


def test_an_encoder_that_lies_about_its_dimensions(built: Path) -> None:
    class ShortEncoder(FakeEncoder):
        def encode_queries(self, queries):  # type: ignore[no-untyped-def]
            return super().encode_queries(queries)[:, :4]

    with pytest.raises(IndexMismatchError, match="16 dimensions"):
        LocalRetriever.open(built, ShortEncoder())


def test_a_real_model_on_the_starter_corpus(tmp_path: Path, minilm) -> None:  # type: ignore[no-untyped-def]
    # A quarter of the corpus, topics that compete with one another: all of it takes a slow machine most of a minute.
    topics = {"cardiology", "emergency", "haematology", "immunology", "pharmacology", "toxicology"}
    build_index((passage for passage in starter() if passage.topic in topics), minilm, tmp_path / "index")

    async def ask() -> list[list[Hit]]:
        retriever = LocalRetriever.open(tmp_path / "index", minilm)
        try:
            return await retriever.search_many(["warfarin mechanism", "first-line treatment of anaphylaxis"], 3)
        finally:
            await retriever.aclose()

    warfarin, anaphylaxis = asyncio.run(ask())
    assert "warfarin" in warfarin[0].passage.title.lower()
    assert "anaphylaxis" in anaphylaxis[0].passage.title.lower()
    assert [hit.rank for hit in warfarin] == [1, 2, 3]
    assert 1 >= warfarin[0].score > warfarin[1].score > 0  # normalised: cosines
