import asyncio
import logging
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from store_fakes import JUDGE_ID, case, judgment

from serve.cache import FILE, JudgmentCache
from verifier.types import Judgment

ABOUT = "correctness"


@dataclass
class Calibrated:
    """As much of a judge as the cache asks for."""

    judge_id: str = JUDGE_ID
    slope: float | None = 0.5

    def calibrated(self, p_correct: float | None) -> float | None:
        return None if self.slope is None or p_correct is None else self.slope * p_correct


JUDGE: Any = Calibrated()


def cache_in(folder: Path, **bounds: Any) -> JudgmentCache:
    chosen = {"max_rows": 1000, "max_bytes": 10_000_000, "max_age_days": 30.0} | bounds
    return JudgmentCache(folder / FILE, **chosen)


async def get(cache: JudgmentCache, number: int = 1, judge: Any = JUDGE, seed: int = 0, about: str = ABOUT) -> Any:
    return await cache.get(judge, case(number), seed, about)


def query(folder: Path, sql: str, *values: Any) -> Any:
    database = sqlite3.connect(folder / FILE)
    with database:
        found = database.execute(sql, values).fetchall()
    database.close()
    return found


async def test_a_file_that_does_not_answer_has_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache, stuck = cache_in(tmp_path, rest_s=0.5), threading.Event()
    cache.put(judgment(), ABOUT)
    await cache.flush()
    cache._thread.submit(stuck.wait, 20)
    begun = time.monotonic()
    assert await cache.get(JUDGE, case(), 0, ABOUT, left_s=0.4) is None
    assert time.monotonic() - begun < 0.35  # a part of what the request has
    for _ in range(100):  # it rests, and costs nobody else anything
        assert await cache.get(JUDGE, case(), 0, ABOUT, left_s=600) is None
    assert time.monotonic() - begun < 0.5
    assert "does not answer" in caplog.text
    assert (cache.stats.errors, cache.stats.skipped, cache.stats.misses) == (1, 100, 101)
    stuck.set()
    await asyncio.sleep(0.6)
    assert await get(cache)
    await cache.aclose()


async def test_a_judgment_comes_back_as_if_it_were_made_for_this_case(tmp_path: Path) -> None:
    cache = cache_in(tmp_path)
    assert await get(cache) is None
    cache.put(judgment().model_copy(update={"judgment_id": "0" * 26}), ABOUT)
    asking = case().model_copy(update={"id": "another name"})
    found = await cache.get(JUDGE, asking, 0, ABOUT)
    made = judgment()
    searches = [search.model_copy(update={"latency_ms": None}) for search in made.searches]
    assert found == made.model_copy(
        update={"id": "another name", "latency_ms": None, "searches": searches, "p_calibrated": 0.45}
    )
    assert found.usage == made.usage
    assert (cache.stats.hits, cache.stats.misses, cache.stats.stored) == (1, 1, 1)
    await cache.aclose()

    again = cache_in(tmp_path)
    assert await get(again)
    assert (
        await get(again, judge=Calibrated(slope=None))
    ).p_calibrated is None  # a calibration is no part of a judge's id
    await again.aclose()


@pytest.mark.parametrize(
    "other",
    [{"number": 2}, {"judge": Calibrated(judge_id="b" * 64)}, {"seed": 1}, {"about": "coherence"}],
    ids=["case", "judge", "seed", "question"],
)
async def test_another_question_is_not_answered(tmp_path: Path, other: dict[str, Any]) -> None:
    cache = cache_in(tmp_path)
    cache.put(judgment(), ABOUT)
    assert await get(cache, **other) is None
    assert await get(cache)
    await cache.aclose()


async def test_a_failure_is_never_kept(tmp_path: Path) -> None:
    cache = cache_in(tmp_path)
    cache.put(judgment(p=None), ABOUT)
    await cache.flush()
    assert await get(cache) is None
    assert cache.stats.stored == 0
    await cache.aclose()


async def test_what_was_answered_once_stays_the_answer(tmp_path: Path) -> None:
    cache = cache_in(tmp_path)
    cache.put(judgment(p=0.9), ABOUT)
    cache.put(judgment(p=0.2), ABOUT)
    assert (await get(cache)).p_correct == 0.9
    assert cache.stats.stored == 1
    await cache.aclose()


# ---- bounds ----------------------------------------------------------------------------------------------------------


async def test_what_was_not_asked_for_the_longest_time_goes_first(tmp_path: Path) -> None:
    cache = cache_in(tmp_path, max_rows=3)
    for number in (1, 2, 3):
        cache.put(judgment(number), ABOUT)
    assert await get(cache, 1)
    cache.put(judgment(4), ABOUT)
    assert [await get(cache, number) is not None for number in (1, 2, 3, 4)] == [True, False, True, True]
    await cache.aclose()
    again = cache_in(tmp_path, max_rows=3)  # the order of use outlives the process
    again.put(judgment(5), ABOUT)
    assert [await get(again, number) is not None for number in (1, 3, 4, 5)] == [False, True, True, True]
    assert query(tmp_path, "SELECT rows FROM totals") == [(3,)]
    assert cache.stats.evicted + again.stats.evicted == 2
    await again.aclose()


async def test_the_size_is_bounded_too(tmp_path: Path) -> None:
    cache = cache_in(tmp_path, max_bytes=50_000)
    for number in range(200):
        cache.put(judgment(number, size=number * 20), ABOUT)
    cache.put(judgment(999, size=60_000), ABOUT)  # larger than all that may be kept
    await cache.flush()
    assert cache.stats.dropped == 0
    rows, size = query(tmp_path, "SELECT rows, bytes FROM totals")[0]
    assert query(tmp_path, "SELECT count(*), sum(length(body)) FROM judgments") == [(rows, size)]
    assert 40_000 < size <= 50_000
    assert await get(cache, 199)
    assert await get(cache, 0) is None
    assert await get(cache, 999) is None
    await cache.aclose()
    assert (tmp_path / FILE).stat().st_size < 500_000


async def test_what_is_old_is_forgotten(tmp_path: Path) -> None:
    cache = cache_in(tmp_path, max_age_days=2)
    for number in (1, 2):
        cache.put(judgment(number), ABOUT)
    await cache.flush()
    query(tmp_path, "UPDATE judgments SET made = ? WHERE rowid = 1", int(time.time()) - 200_000)
    assert await get(cache, 1) is None
    await cache.tidy()
    assert query(tmp_path, "SELECT rowid FROM judgments") == [(2,)]
    query(tmp_path, "UPDATE judgments SET made = ?", int(time.time()) - 200_000)
    cache.put(judgment(2, p=0.2), ABOUT)  # an old one is no obstacle
    assert (await get(cache, 2)).p_correct == 0.2
    await cache.aclose()


# ---- faults ----------------------------------------------------------------------------------------------------------


def test_a_killed_process_leaves_a_cache_that_goes_on(tmp_path: Path) -> None:
    script = Path(__file__).with_name("cache_until_killed.py")
    told: list[int] = []
    for lines in (1, 100):
        first = max(told, default=0) + 1
        command = [sys.executable, str(script), str(tmp_path / FILE), str(first)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout
            told += [int(process.stdout.readline()) for _ in range(lines)]
            process.kill()
            told += [int(line) for line in process.stdout.read().split("\n")[:-1]]

    async def missing() -> list[int]:
        cache = cache_in(tmp_path)
        absent = [number for number in told if await get(cache, number) is None]
        assert cache.stats.errors == 0
        await cache.aclose()
        return absent

    assert len(told) > 100
    assert asyncio.run(missing()) == []


@pytest.mark.parametrize("damage", ["other bytes", "torn", "a page of zeros", "empty", "a newer version"])
async def test_a_damaged_file_is_set_aside(tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    cache = cache_in(tmp_path)
    for number in range(50):
        cache.put(judgment(number, size=4000), ABOUT)
    await cache.aclose()
    file = tmp_path / FILE
    content = bytearray(file.read_bytes())
    match damage:
        case "other bytes":
            content = bytearray(b"no database " * 1000)
        case "torn":
            content = content[: len(content) // 3 + 17]
        case "a page of zeros":
            content[4096:16384] = bytes(12288)
        case "empty":
            content = bytearray()
    if damage == "a newer version":
        query(tmp_path, "PRAGMA user_version = 99")
    else:
        file.write_bytes(content)

    cache = cache_in(tmp_path)
    for number in range(50, 100):
        await get(cache, number - 50)  # whatever it gives, it raises nothing
        cache.put(judgment(number, size=4000), ABOUT)
    await cache.flush()
    assert await get(cache, 99)
    await cache.aclose()
    if damage == "empty":
        assert not (tmp_path / f"{FILE}.aside").exists()
    else:
        assert (tmp_path / f"{FILE}.aside").exists()
        assert any("a new one is begun" in record.message for record in caplog.records)


async def test_a_bit_that_fell_over_is_no_judgment(tmp_path: Path) -> None:
    cache = cache_in(tmp_path)
    cache.put(judgment(p=0.9), ABOUT)
    await cache.flush()
    query(tmp_path, "UPDATE judgments SET body = CAST(replace(CAST(body AS TEXT), '0.9', '0.1') AS BLOB)")
    assert await get(cache) is None
    assert cache.stats.errors == 1
    cache.put(judgment(p=0.8), ABOUT)  # made anew
    assert (await get(cache)).p_correct == 0.8
    await cache.aclose()


async def test_a_row_under_another_key_is_no_answer(tmp_path: Path) -> None:
    cache = cache_in(tmp_path)
    cache.put(judgment(1), ABOUT)
    cache.put(judgment(2), ABOUT)
    await cache.flush()
    ((one,), (two,)) = query(tmp_path, "SELECT key FROM judgments ORDER BY rowid")
    query(tmp_path, "DELETE FROM judgments WHERE key = ?", one)
    query(tmp_path, "UPDATE judgments SET key = ? WHERE key = ?", one, two)
    assert await get(cache, 1) is None
    await cache.aclose()


async def test_a_locked_file_is_no_cache_and_no_delay(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache = cache_in(tmp_path)
    cache.put(judgment(1), ABOUT)
    await cache.flush()
    other = sqlite3.connect(tmp_path / FILE, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert await get(cache, 1)  # readers do not wait for writers
    started = time.monotonic()
    for number in range(2, 30):
        cache.put(judgment(number), ABOUT)
        await get(cache, number)
    assert time.monotonic() - started < 5  # one wait of 0.25 s, then a rest
    assert cache.stats.errors == 1
    assert cache.stats.skipped > 20
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 1
    other.execute("ROLLBACK")
    other.close()
    await cache.aclose()


async def test_it_works_again_after_a_rest(tmp_path: Path) -> None:
    cache = JudgmentCache(tmp_path / FILE, max_rows=10, max_bytes=10**6, max_age_days=1, rest_s=0.2)
    (tmp_path / FILE).mkdir()  # nothing that could be opened
    cache.put(judgment(), ABOUT)
    assert await get(cache) is None
    assert cache.stats.errors == 1
    (tmp_path / FILE).rmdir()
    await asyncio.sleep(0.3)
    cache.put(judgment(), ABOUT)
    assert await get(cache)
    await cache.aclose()


async def test_a_full_disk_costs_no_request(tmp_path: Path) -> None:
    """The system refuses to let files grow."""
    cache = cache_in(tmp_path)
    cache.put(judgment(1), ABOUT)
    await cache.flush()
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        cache.put(judgment(2), ABOUT)
        await cache.flush()
        assert cache.stats.errors == 1
        assert await get(cache, 2) is None
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    await cache.aclose()
    again = cache_in(tmp_path)
    assert await get(again, 1)
    assert await get(again, 2) is None
    again.put(judgment(2), ABOUT)
    assert await get(again, 2)
    await again.aclose()


async def test_a_database_that_is_full_costs_no_request(tmp_path: Path) -> None:
    """SQLite's own limit, which gives the error of a disk without room."""
    cache = cache_in(tmp_path)
    cache.put(judgment(1), ABOUT)
    await cache.flush()
    await cache._in_thread(lambda: cache._open().execute("PRAGMA max_page_count = 12").fetchall())
    for number in range(2, 10):
        cache.put(judgment(number, size=20_000), ABOUT)
    await cache.flush()
    assert cache.stats.errors == 1
    assert cache.stats.stored >= 1
    assert cache.stats.stored + cache.stats.skipped == 8  # the first fits perhaps, one fails, the rest is not tried
    await cache.aclose()
    again = cache_in(tmp_path)
    assert await get(again, 1)
    await again.aclose()


async def test_more_than_can_be_written_is_dropped_not_piled_up(tmp_path: Path) -> None:
    cache = cache_in(tmp_path)
    made: Judgment = judgment()
    for _ in range(1500):
        cache.put(made, ABOUT)  # without giving way once, so that nothing is counted as written meanwhile
    assert cache.stats.dropped == 500
    await cache.aclose()


def test_only_the_owner_may_read(tmp_path: Path) -> None:
    async def fill() -> None:
        cache = JudgmentCache(tmp_path / "state" / FILE, max_rows=10, max_bytes=10**6, max_age_days=1)
        cache.put(judgment(), ABOUT)
        await cache.flush()
        modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "state").iterdir()}
        assert modes == {0o600}
        await cache.aclose()

    asyncio.run(fill())
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
