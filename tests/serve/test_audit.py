import asyncio
import json
import logging
import os
import resource
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from store_fakes import case, judged, judgment, passage

from configs.settings import AuditSettings
from retrieval.passage import Passage
from serve.audit import AuditLog
from serve.audit_files import newest_first
from serve.audit_schemas import AuditLine
from serve.audit_store import AuditStore, Wanted
from serve.errors import ServiceError
from serve.evidence import FILE, PassageStore, passage_digest
from verifier.types import Status

EVERYTHING = Wanted()


def log_of(
    folder: Path, clock: Callable[[], float] = time.time, most_examined: int = 20_000, **settings: Any
) -> AuditLog:
    chosen = AuditSettings(**settings)
    store = AuditStore(folder, chosen, clock=clock, most_examined=most_examined)
    return AuditLog(store, refuse=chosen.when_unwritable == "refuse")


def log_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("1/*.jsonl"))


def everything_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


@contextmanager
def full_disk(size: int = 0) -> Iterator[None]:
    """The system refuses to let any file grow beyond `size`."""
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)


async def test_a_judgment_is_found_again_with_its_evidence(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    (given,) = await log.record([judged()])
    assert given.judgment_id
    assert given.model_copy(update={"judgment_id": None}) == judgment()
    found = await log.find(given.judgment_id)
    assert found
    assert (found.caller, found.request_id, found.about) == ("trainer", "r1", "correctness")
    assert (found.status, found.verdict, found.p_correct, found.seed) == ("scored", 1, 0.9, 0)
    assert (found.case_digest, found.index_digest) == (case().digest, "1" * 64)
    assert found.usage.policy_tokens == 24
    (reference,) = found.searches[0].passages
    assert (reference.id, reference.sha256) == ("p1", passage_digest(passage()))
    assert reference.passage
    assert (reference.passage.title, reference.passage.text) == ("Warfarin", "It inhibits VKOR.")
    await log.aclose()

    again = log_of(tmp_path)  # another process, which never wrote
    assert await again.find(given.judgment_id) == found
    assert (await again.page(EVERYTHING)).judgments[0].id == given.judgment_id
    await again.aclose()


@pytest.mark.parametrize("texts", [False, True])
async def test_texts_are_kept_only_if_asked(tmp_path: Path, texts: bool) -> None:
    log = log_of(tmp_path, texts=texts)
    secret = case(trace="Mrs Miller takes warfarin.")
    answer = judgment().model_copy(update={"reasoning": "Mrs Miller bleeds.", "detail": "said Mrs Miller"})
    searches = [answer.searches[0].model_copy(update={"query": "Miller warfarin"})]
    (given,) = await log.record(
        [replace(judged(), case=secret, judgment=answer.model_copy(update={"searches": searches}))]
    )
    await log.aclose()
    written = everything_in(tmp_path)
    assert (b"Miller" in written) is texts
    assert (b"case-1" in written) is texts
    assert b"It inhibits VKOR." in written  # the passage: no patient's, and evidence must resolve
    found = await log_of(tmp_path).find(given.judgment_id or "")
    assert found
    if texts:
        assert found.texts
        assert found.texts.case == secret
        assert (found.texts.reasoning, found.texts.queries) == ("Mrs Miller bleeds.", ["Miller warfarin"])
    else:
        assert found.texts is None


async def test_pages_are_filtered_and_continued(tmp_path: Path) -> None:
    log = log_of(tmp_path, max_file_bytes=4000)
    await log.record([judged(n, p=None if n % 5 == 0 else n % 2 * 0.8, caller=f"key-{n % 3}") for n in range(1, 31)])
    everything = await log.page(EVERYTHING, limit=100)
    assert [line.request_id for line in everything.judgments] == [f"r{n}" for n in range(30, 0, -1)]
    assert everything.next is None

    async def all_of(wanted: Wanted) -> list[AuditLine]:
        found, before = [], None
        while True:
            page = await log.page(wanted, before=before, limit=4)
            assert len(page.judgments) <= 4
            found += page.judgments
            if page.next is None:
                return found
            before = page.next

    for wanted in (
        EVERYTHING,
        Wanted(status=Status.ENGINE_FAILED),
        Wanted(status=Status.TIMEOUT),
        Wanted(verdict=0),
        Wanted(verdict=1, caller="key-1"),
        Wanted(status=Status.SCORED, verdict=1),
        Wanted(status=Status.ENGINE_FAILED, verdict=1),
    ):
        expected = [
            line
            for line in everything.judgments
            if (wanted.status is None or line.status is wanted.status)
            and (wanted.verdict is None or line.verdict == wanted.verdict)
            and (wanted.caller is None or line.caller == wanted.caller)
        ]
        assert await all_of(wanted) == expected
    await log.aclose()


async def test_a_page_reads_a_bounded_number_of_lines(tmp_path: Path) -> None:
    """A filter that fits nothing gives an empty page with a place to go on from."""
    log = log_of(tmp_path, most_examined=10)
    await log.record([judged(n, p=None if n == 3 else 0.9) for n in range(1, 31)])
    rare = Wanted(status=Status.ENGINE_FAILED)
    first = await log.page(rare)
    assert first.judgments == []
    second = await log.page(rare, before=first.next)
    third = await log.page(rare, before=second.next)
    assert second.judgments == []
    assert [line.request_id for line in third.judgments] == ["r3"]
    await log.aclose()


async def test_a_filter_is_not_fooled_by_texts(tmp_path: Path) -> None:
    log = log_of(tmp_path, texts=True)
    await log.record([replace(judged(p=0.1), case=case(trace='"status":"timeout","verdict":1'))])
    assert (await log.page(Wanted(status=Status.TIMEOUT))).judgments == []
    assert (await log.page(Wanted(verdict=1))).judgments == []
    assert len((await log.page(Wanted(verdict=0))).judgments) == 1
    await log.aclose()


@pytest.mark.parametrize("id", ["", "x", "../../etc/passwd", "0" * 26, "7" + "Z" * 25])
async def test_an_id_that_nobody_gave_out(tmp_path: Path, id: str) -> None:
    log = log_of(tmp_path)
    assert await log.find(id) is None
    await log.record([judged()])
    assert await log.find(id) is None
    await log.aclose()


async def test_many_at_once_are_written_together_and_none_is_lost(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    given = await asyncio.gather(*(log.record([judged(n), judged(n + 1000)]) for n in range(300)))
    ids = [answer.judgment_id for pair in given for answer in pair]
    assert len(set(ids)) == 600
    assert log.stats.written == 600
    for number, pair in enumerate(given):
        found = [await log.find(answer.judgment_id or "") for answer in pair]
        assert [line and line.request_id for line in found] == [f"r{number}", f"r{number + 1000}"]
    await log.aclose()


async def test_a_client_that_leaves_takes_no_other_with_it(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    leaving = asyncio.create_task(log.record([judged(1)]))
    staying = asyncio.create_task(log.record([judged(2)]))
    await asyncio.sleep(0)
    leaving.cancel()
    (given,) = await staying
    found = await log.find(given.judgment_id or "")
    assert found
    assert found.request_id == "r2"
    await log.aclose()


async def test_what_cannot_be_written_for_its_own_sake_fails_alone(tmp_path: Path) -> None:
    log = log_of(tmp_path, texts=True)
    broken = judgment().model_copy(update={"reasoning": "\ud800"})
    good, bad, another = await asyncio.gather(
        log.record([judged(1)]),
        log.record([replace(judged(2), judgment=broken)]),
        log.record([judged(3)]),
        return_exceptions=True,
    )
    assert isinstance(bad, ValueError)
    assert isinstance(good, list)
    assert isinstance(another, list)
    assert [line.request_id for line in (await log.page(EVERYTHING)).judgments] == ["r3", "r1"]
    await log.aclose()


# ---- when the disk fails ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1500], ids=["not a byte", "half of it"])
async def test_a_full_disk_is_tolerated_or_refused(tmp_path: Path, size: int, caplog: pytest.LogCaptureFixture) -> None:
    tolerant, strict = log_of(tmp_path / "a"), log_of(tmp_path / "b", when_unwritable="refuse")
    for log in (tolerant, strict):
        await log.record([judged(1)])
    with full_disk(size), caplog.at_level(logging.CRITICAL):
        many = [judged(n, p=None) for n in range(2, 6)]
        given = await tolerant.record(many)
        assert [answer.judgment_id for answer in given] == [None] * 4
        assert given == [item.judgment for item in many]  # no judgment suffers
        with pytest.raises(ServiceError) as refused:
            await strict.record(many)
        assert refused.value.status == 503
        assert refused.value.headers["Retry-After"]
        assert str(tmp_path) not in refused.value.detail
    for log in (tolerant, strict):
        assert (log.stats.written, log.stats.failed) == (1, 4)
        (given,) = await log.record([judged(9)])  # there is room again
        assert given.judgment_id
        assert [line.request_id for line in (await log.page(EVERYTHING)).judgments] == ["r9", "r1"]
        await log.aclose()


@pytest.mark.parametrize("rule", ["tolerate", "refuse"])
async def test_a_disk_that_does_not_answer_is_not_waited_for(
    tmp_path: Path, rule: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log, stuck = log_of(tmp_path, when_unwritable=rule), threading.Event()
    write = AuditStore.write

    def hangs(store: AuditStore, items: Any) -> list[str]:
        stuck.wait(20)
        return write(store, items)

    monkeypatch.setattr(AuditStore, "write", hangs)
    begun = time.monotonic()
    for number in (1, 2, 3):  # the first is in the disk's hands, the others wait behind it
        if rule == "refuse":
            with pytest.raises(ServiceError, match="cannot be written down"):
                await log.record([judged(number)], left_s=0.1)
        else:
            [given] = await log.record([judged(number)], left_s=0.1)
            assert given == judged(number).judgment
    assert time.monotonic() - begun < 5
    assert "the disk does not answer" in caplog.text
    assert (log.stats.written, log.stats.failed) == (0, 3)
    stuck.set()
    [given] = await log.record([judged(4)])
    assert given.judgment_id
    # Whoever is not answered may be written down all the same, if the disk had it already; nobody waits in memory for ever.
    assert [line.request_id for line in (await log.page(EVERYTHING)).judgments] == ["r4", "r1"]
    await log.aclose()


async def test_whether_judgments_can_be_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tolerant, strict = log_of(tmp_path / "a"), log_of(tmp_path / "b", when_unwritable="refuse")
    with full_disk():
        await tolerant.check()  # they are given all the same
        for _ in range(2):
            with pytest.raises(ServiceError) as refused:
                await strict.check()
            assert (refused.value.status, refused.value.kind) == (503, "audit-unavailable")
    await strict.check()
    assert not list((tmp_path / "b").rglob("probe"))
    with full_disk():
        await strict.check()  # it could a moment ago
        with pytest.raises(ServiceError):
            await strict.record([judged(1)])
        with pytest.raises(ServiceError):
            await strict.check()
    monkeypatch.setattr("serve.audit._PROBE_S", 0.05)
    stuck = threading.Event()
    monkeypatch.setattr(AuditStore, "check", lambda _: stuck.wait(20))
    with pytest.raises(ServiceError):
        await strict.check()
    stuck.set()
    for log in (tolerant, strict):
        await log.aclose()


async def test_trouble_is_told_once_a_minute(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "audit").write_text("a file is where the folder should be")
    log = log_of(tmp_path / "audit")
    for _ in range(20):
        assert (await log.record([judged()]))[0].judgment_id is None
    assert log.stats.failed == 20
    assert len([record for record in caplog.records if record.levelno == logging.ERROR]) == 1
    assert (await log.page(EVERYTHING)).judgments == []
    await log.aclose()


@pytest.mark.parametrize("damage", [b"no database at all", b"", None], ids=["other bytes", "empty", "torn"])
async def test_damaged_passages_cost_only_themselves(tmp_path: Path, damage: bytes | None) -> None:
    log = log_of(tmp_path)
    (before,) = await log.record([judged()])
    await log.aclose()
    file = tmp_path / FILE
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2] if damage is None else damage)

    log = log_of(tmp_path)
    (after,) = await log.record([judged(2)])
    for answer in (before, after):
        found = await log.find(answer.judgment_id or "")
        assert found
        assert found.searches[0].passages[0].passage == passage_as_kept()  # the same passage was kept anew
    await log.aclose()


async def test_evidence_that_is_gone_is_said_to_be(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    (given,) = await log.record([judged()])
    await log.aclose()
    (tmp_path / FILE).unlink()
    found = await log_of(tmp_path).find(given.judgment_id or "")
    assert found
    (reference,) = found.searches[0].passages
    assert (reference.id, reference.passage) == ("p1", None)


def passage_as_kept() -> Passage:
    return Passage.model_validate(passage().model_dump())


# ---- age -------------------------------------------------------------------------------------------------------------


async def test_what_is_older_than_the_setting_is_deleted(tmp_path: Path) -> None:
    day = 86_400.0
    log = log_of(tmp_path, retention_days=10, max_file_bytes=1024)
    (old,) = await log.record([judged(1)])
    (young,) = await log.record([judged(2)])
    files = log_files(tmp_path)
    past = files[0].stat().st_mtime - 10.5 * day
    os.utime(files[0], (past, past))
    with sqlite3.connect(tmp_path / FILE) as database:
        unused = ("f" * 64, int(past // day) - 1, "{}")
        database.execute("INSERT INTO passages VALUES (?, ?, ?)", unused)
    database.close()
    await log.tidy()
    assert await log.find(old.judgment_id or "") is None
    assert await log.find(young.judgment_id or "")
    with sqlite3.connect(tmp_path / FILE) as database:
        assert database.execute("SELECT count(*) FROM passages").fetchone() == (1,)
    database.close()
    await log.aclose()


async def test_nothing_is_deleted_where_the_setting_is_zero(tmp_path: Path) -> None:
    log = log_of(tmp_path, retention_days=0, clock=lambda: 1e9)
    (given,) = await log.record([judged()])
    (file,) = log_files(tmp_path)
    os.utime(file, (0, 0))
    await log.tidy()
    assert await log.find(given.judgment_id or "")
    await log.aclose()


async def test_an_idle_service_lets_go_of_its_last_file(tmp_path: Path) -> None:
    log = log_of(tmp_path, retention_days=1e-9)
    await log.record([judged()])
    (file,) = log_files(tmp_path)
    os.utime(file, (0, 0))
    await log.tidy()
    assert not file.exists()
    (given,) = await log.record([judged(2)])
    found = await log.find(given.judgment_id or "")
    assert found
    await log.aclose()


async def test_a_clock_that_goes_back_loses_nothing(tmp_path: Path) -> None:
    times = iter([2e9, 2e9, 1e9, 1e9, 1.5e9, 1.5e9])
    log = log_of(tmp_path, clock=lambda: next(times))
    ids = [(await log.record([judged(n)]))[0].judgment_id for n in range(3)]
    assert sorted(ids, key=str) == ids
    for id in ids:
        assert await log.find(id or "")
    lines = [AuditLine.model_validate_json(line.text) for line in newest_first(tmp_path)]
    assert [line.request_id for line in lines] == ["r2", "r1", "r0"]
    assert [line.time.timestamp() for line in lines] == [1.5e9, 1e9, 2e9]  # the time is the clock's, whatever it was
    await log.aclose()


def test_a_line_is_json_that_begins_with_its_id(tmp_path: Path) -> None:
    """Other programs read these files; and the search by halves goes by the beginning."""
    AuditStore(tmp_path, AuditSettings()).write([judged()])
    (file,) = log_files(tmp_path)
    (text,) = file.read_text().splitlines()
    line = json.loads(text)
    assert text.startswith(f'{{"id":"{line["id"]}"')
    assert line["searches"][0]["passages"] == [
        {"id": "p1", "sha256": passage_digest(passage()), "score": 0.5, "rank": 1}
    ]


# ---- passages --------------------------------------------------------------------------------------------------------


def test_passages_are_kept_once(tmp_path: Path) -> None:
    store = PassageStore(tmp_path / FILE)
    one, changed = passage(1), passage(1, "It inhibits thrombin.")
    store.keep([one, one, one.model_copy(update={"score": 0.1, "rank": 3})])
    store.keep([one, changed])
    with sqlite3.connect(tmp_path / FILE) as database:
        assert database.execute("SELECT count(*) FROM passages").fetchone() == (2,)
    database.close()
    found = store.find([passage_digest(one), passage_digest(changed), "0" * 64])
    assert {digest: kept.text for digest, kept in found.items()} == {
        passage_digest(one): one.text,
        passage_digest(changed): changed.text,
    }
    store.close()


def test_a_passage_that_was_tampered_with_is_not_shown(tmp_path: Path) -> None:
    store = PassageStore(tmp_path / FILE)
    store.keep([passage()])
    with sqlite3.connect(tmp_path / FILE) as database:
        database.execute("UPDATE passages SET body = replace(body, 'inhibits', 'activates')")
    database.close()
    assert store.find([passage_digest(passage())]) == {}
    store.close()
