import os
import resource
import signal
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve.audit_files import AuditWriter, Line, delete_older, find_line, newest_first
from serve.judgment_ids import JudgmentIds


def line(number: int, size: int = 0) -> Line:
    id = f"{number:026d}"
    return Line(id, b'{"id":"%s","text":"%s"}' % (id.encode(), b"x" * size))


def writer(log: Path, max_bytes: int = 10_000_000, max_age_s: float = 3600.0) -> AuditWriter:
    return AuditWriter(log, max_bytes=max_bytes, max_age_s=max_age_s)


@given(
    sizes=st.lists(st.sampled_from([0, 5, 70_000, 140_000]) | st.integers(0, 300), min_size=1, max_size=40),
    batches=st.integers(1, 7),
    max_bytes=st.sampled_from([1, 500, 100_000, 10_000_000]),
)
def test_every_line_is_found_and_listed(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], batches: int, max_bytes: int
) -> None:
    """Whatever the sizes of lines, batches and files are, blocks of reading included."""
    log = tmp_path_factory.mktemp("log")
    lines = [line(10 * number, size) for number, size in enumerate(sizes, start=1)]
    out = writer(log, max_bytes)
    for start in range(0, len(lines), batches):
        out.append(lines[start : start + batches])
    out.close()

    for written in lines:
        assert find_line(log, written.id) == written.text
        for beside in (-1, 1):
            assert find_line(log, f"{int(written.id) + beside:026d}") is None
        assert list(newest_first(log, before=written.id)) == [
            other for other in reversed(lines) if other.id < written.id
        ]
    assert list(newest_first(log)) == lines[::-1]
    assert list(newest_first(log, before=f"{10**9:026d}")) == lines[::-1]


def test_an_empty_log(tmp_path: Path) -> None:
    assert find_line(tmp_path / "none", line(1).id) is None
    assert list(newest_first(tmp_path / "none")) == []
    writer(tmp_path / "log").close()
    assert list(newest_first(tmp_path / "log")) == []


def test_files_are_begun_by_size_and_by_age(tmp_path: Path) -> None:
    out = writer(tmp_path, max_bytes=300)
    for number in range(1, 10):
        out.append([line(number, 60)])
    files = sorted(tmp_path.glob("1/*.jsonl"))
    assert len(files) == 5  # two lines of about a hundred bytes and one that would be too much
    assert all(file.stat().st_size <= 300 for file in files)
    out.close()
    young = writer(tmp_path, max_age_s=0.0)
    young.append([line(10)])
    young.append([line(11)])
    assert len(sorted(tmp_path.glob("1/*.jsonl"))) == 7
    young.close()


def test_only_the_owner_may_read(tmp_path: Path) -> None:
    out = writer(tmp_path / "log")
    out.append([line(1)])
    out.close()
    assert (tmp_path / "log" / "1").stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in tmp_path.glob("log/1/*")} == {0o600}


def test_several_processes_write_side_by_side(tmp_path: Path) -> None:
    """Two locks of one file exclude one another within a process as well."""
    one, two = writer(tmp_path), writer(tmp_path)
    assert one.folder != two.folder
    for number in range(1, 21):
        (one if number % 3 else two).append([line(number)])
    assert list(newest_first(tmp_path)) == [line(number) for number in range(20, 0, -1)]
    assert find_line(tmp_path, line(3).id) == line(3).text
    assert find_line(tmp_path, line(4).id) == line(4).text
    one.close()
    again = writer(tmp_path)
    assert again.folder == one.folder
    assert again.last_id == line(20).id
    again.close()
    two.close()


@pytest.mark.parametrize("torn", [b"", b"{", b'{"id":"', line(4).text[:-1], line(4).text, b"\0" * 100])
def test_a_torn_end_is_not_read_and_not_touched(tmp_path: Path, torn: bytes) -> None:
    out = writer(tmp_path)
    out.append([line(1), line(2), line(3)])
    out.close()
    (file,) = tmp_path.glob("1/*.jsonl")
    with file.open("ab") as stream:
        stream.write(torn)
    before = file.read_bytes()

    again = writer(tmp_path)
    assert again.last_id == line(3).id
    again.append([line(5)])
    assert file.read_bytes() == before
    assert [entry.id for entry in newest_first(tmp_path)] == [line(number).id for number in (5, 3, 2, 1)]
    assert [find_line(tmp_path, line(number).id) for number in (3, 5)] == [line(3).text, line(5).text]
    assert find_line(tmp_path, line(4).id) is None
    again.close()


@pytest.mark.parametrize("bad", range(9))
def test_a_line_that_the_disk_lost_hides_no_other(tmp_path: Path, bad: int) -> None:
    out = writer(tmp_path)
    lines = [line(number, 40) for number in range(1, 10)]
    out.append(lines)
    out.close()
    (file,) = tmp_path.glob("1/*.jsonl")
    content = file.read_bytes().split(b"\n")
    content[bad] = b"\xff" * len(content[bad])
    file.write_bytes(b"\n".join(content))
    rest = [entry for number, entry in enumerate(lines) if number != bad]
    assert list(newest_first(tmp_path)) == rest[::-1]
    assert [find_line(tmp_path, entry.id) for entry in rest] == [entry.text for entry in rest]
    assert find_line(tmp_path, lines[bad].id) is None


def test_a_look_up_reads_little_of_a_large_file(tmp_path: Path) -> None:
    out = writer(tmp_path, max_bytes=1_000_000_000)
    for start in range(0, 60_000, 1000):
        out.append([line(number, 900) for number in range(start, start + 1000)])
    out.close()
    (file,) = tmp_path.glob("1/*.jsonl")
    assert file.stat().st_size > 50_000_000
    before = _read_so_far()
    for number in (0, 12_345, 59_999):
        assert find_line(tmp_path, line(number).id) == line(number, 900).text
    assert next(iter(newest_first(tmp_path))).id == line(59_999).id
    assert _read_so_far() - before < 15_000_000  # three look-ups and the last line: some 20 blocks each


def _read_so_far() -> int:
    """Bytes that this process asked the system for."""
    return int(Path("/proc/self/io").read_text().split()[1])


def test_files_are_deleted_by_age(tmp_path: Path) -> None:
    out = writer(tmp_path, max_bytes=1)
    for number in range(1, 4):
        out.append([line(number)])
    out.close()
    old, middle, young = sorted(tmp_path.glob("1/*.jsonl"))
    os.utime(old, (1000, 1000))
    os.utime(middle, (2000, 2000))
    assert delete_older(tmp_path, 2000) == 1
    assert [entry.id for entry in newest_first(tmp_path)] == [line(3).id, line(2).id]
    assert delete_older(tmp_path, 3000) == 1
    assert young.exists()
    assert find_line(tmp_path, line(1).id) is None


def test_a_full_disk_leaves_no_half_line(tmp_path: Path) -> None:
    """The system refuses to let files grow: what was written of a line is taken back, and it goes on when there is room."""
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    out = writer(tmp_path)
    try:
        out.append([line(1, 500)])
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
        with pytest.raises(OSError, match="File too large"):
            out.append([line(2, 300), line(3, 300)])
        assert list(newest_first(tmp_path)) == [line(1, 500)]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    out.append([line(4, 300)])
    out.close()
    assert list(newest_first(tmp_path)) == [line(4, 300), line(1, 500)]
    assert all(file.read_bytes().endswith(b"}\n") for file in tmp_path.glob("1/*.jsonl"))


_WRITE_UNTIL_KILLED = """
import sys
from itertools import count
from pathlib import Path
from serve.audit_files import AuditWriter, Line
from serve.judgment_ids import JudgmentIds
import time
out = AuditWriter(Path(sys.argv[1]), max_bytes=200_000, max_age_s=3600)
ids = JudgmentIds(time.time, out.last_id)
for number in count():
    batch = [Line(id, b'{"id":"%s","text":"%s"}' % (id.encode(), b"x" * 3000)) for id in (ids.next() for _ in range(3))]
    out.append(batch)
    print(batch[-1].id, flush=True)
"""


def test_what_was_written_before_a_kill_is_there(tmp_path: Path) -> None:
    told: list[str] = []
    for lines in (1, 40, 120):
        with subprocess.Popen(
            [sys.executable, "-c", _WRITE_UNTIL_KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout
            for number in count(1):
                told.append(process.stdout.readline().strip())
                if number == lines:
                    break
            process.kill()
            told += process.stdout.read().split("\n")[:-1]
    found = [entry.id for entry in newest_first(tmp_path)]
    assert set(told) <= set(found)
    assert found == sorted(found, reverse=True)
    assert len(found) <= 3 * (len(told) + 3)
    assert all(find_line(tmp_path, id) for id in told)
    out = writer(tmp_path)
    ids = JudgmentIds(lambda: 0.0, out.last_id)
    assert ids.next() > found[0]
    out.close()
