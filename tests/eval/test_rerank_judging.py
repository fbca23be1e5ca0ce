import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from eval_fakes import scripted_judge
from rerank_fakes import Reader, many, sample, write_lines

from configs.appended import ResumeError
from eval.cases import BadLine
from eval.outage import OutageError
from eval.rerank.judging import judge_again, judge_file
from eval.rerank.judgments import Identity, JudgmentsFile, Kept, entries, is_finished, read_identity
from eval.rerank.samples import Columns, Samples
from eval.rerank.sources import Source, open_source
from eval.run import Judging
from verifier.types import Status

ROWS: list[Any] = [*many(4), b"{", *many(4)]  # waves of three, three and two
LISTS = [{"question": f"q{n}", "samples": [f"0.{n}{place}" for place in range(n)]} for n in range(5)]


def identity(judge: Judging, **changed: Any) -> Identity:
    who = {"input_sha256": "b" * 64, "columns": Columns(), "judge_id": judge.judge_id, "seed": judge.seed}
    return Identity(**{**who, "wave": judge.max_together, **changed})


def judge_it(path: Path, source: Source, judge: Judging | None = None, waves: int = 99, **changed: Any) -> Kept:
    """A run that ends after so many waves, from wherever the file stands; gives where that was."""
    judge = judge or Reader()
    who = identity(judge, **changed)

    async def go(file: JudgmentsFile, kept: Kept) -> None:
        left = waves
        async for _ in judge_file(judge, Samples(source, who.columns), file, kept):
            left -= 1
            if left == 0:
                return

    with JudgmentsFile(path) as file:
        kept = file.resume(who)
        asyncio.run(go(file, kept))
    return kept


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return open_source(write_lines(tmp_path / "in.jsonl", ROWS))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "judgments.jsonl"


@pytest.fixture
def unbroken(tmp_path: Path, source: Source) -> bytes:
    judge_it(tmp_path / "unbroken.jsonl", source)
    return (tmp_path / "unbroken.jsonl").read_bytes()


def test_the_file_says_what_is_judged_by_whom_and_how_many_there_are(path: Path, source: Source) -> None:
    judge_it(path, source)
    first, *rest = path.read_bytes().splitlines()
    assert Identity.model_validate(json.loads(first)["rerank"]) == identity(Reader()) == read_identity(path)
    assert rest[-1] == b'{"end":8}'
    assert is_finished(path)
    found = list(entries(path))
    assert [(entry.row, entry.place) for entry in found] == [(n, 0) for n in (1, 2, 3, 4, 6, 7, 8, 9)]
    data = path.read_bytes()
    for entry in found:
        whole = json.loads(data[entry.at : entry.at + len(entry.text)])
        assert (whole["p_correct"], whole["verdict"], whole["status"]) == (entry.p, entry.verdict, entry.status)
        assert bytes.fromhex(whole["case_digest"]) == entry.content
        assert whole["latency_ms"] is None


def test_numbers_come_back_as_they_were(path: Path, tmp_path: Path) -> None:
    values = ["0.0", "1.0", "1e-7", "5e-324", "0.1", "0.30000000000000004", "unclear", "down"]
    judge_it(path, open_source(write_lines(tmp_path / "x.jsonl", [sample("q", value) for value in values])))
    assert [entry.p for entry in entries(path)] == [*map(float, values[:6]), None, None]
    assert [entry.status for entry in entries(path)][-2:] == [Status.UNPARSEABLE, Status.ENGINE_FAILED]


def test_a_real_judge_fits(path: Path, source: Source) -> None:
    judge_it(path, source, scripted_judge())
    assert {entry.status for entry in entries(path)} == {Status.SCORED}
    assert len({entry.p for entry in entries(path)}) > 1


def test_a_file_cut_anywhere_is_continued_at_a_whole_wave(path: Path, source: Source, unbroken: bytes) -> None:
    for end in [*range(0, len(unbroken), 61), *range(len(unbroken) - 12, len(unbroken) + 1)]:
        path.write_bytes(unbroken[:end])
        kept = judge_it(path, source)
        assert kept.count in (0, 3, 6, 8)
        assert kept.finished == (end == len(unbroken))
        assert path.read_bytes() == unbroken


@pytest.mark.parametrize("stop_after", range(1, 4))
def test_a_run_that_goes_on_judges_the_rest_in_the_same_waves(tmp_path: Path, path: Path, stop_after: int) -> None:
    source = open_source(write_lines(tmp_path / "x.jsonl", LISTS))
    columns = Columns(samples="samples")
    whole, first, second = Reader(), Reader(), Reader()
    judge_it(tmp_path / "whole", source, whole, columns=columns)
    judge_it(path, source, first, stop_after, columns=columns)
    judge_it(path, source, second, columns=columns)
    assert whole.waves == [["2.0", "3.0", "3.1"], ["4.0", "4.1", "4.2"], ["5.0", "5.1", "5.2"], ["5.3"]]
    assert first.waves + second.waves == whole.waves
    assert path.read_bytes() == (tmp_path / "whole").read_bytes()


def test_bad_rows_are_told_once_and_take_no_place_in_a_wave(tmp_path: Path) -> None:
    source = open_source(
        write_lines(tmp_path / "x.jsonl", [sample("q", "0.1"), b"{", sample("q", ""), sample("q", "0.2")])
    )
    samples, told = Samples(source, Columns()), list[BadLine]()
    assert [case.id for case in samples.cases_after((0, -1), told.append)] == ["1", "4"]
    assert [bad.line for bad in told] == [2, 3]
    assert [case.id for case in samples.cases_after((1, 0), told.append)] == ["4"]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"input_sha256": "c" * 64}, "the input has changed since; bring back the old one"),
        ({"columns": Columns(trace="answer")}, "--trace-column was trace and is answer"),
        ({"judge_id": "d" * 64}, r"by another judge \(aaaaaaaaaaaa…, now dddddddddddd…\)"),
        ({"seed": 4}, "its seed is 0, not 4; use --set judge.sampling.seed=0"),
        ({"wave": 5}, "judged 3 cases at a time, now it would be 5"),
    ],
)
def test_judgments_of_another_run_are_refused_and_untouched(
    path: Path, source: Source, unbroken: bytes, changed: dict[str, Any], reason: str
) -> None:
    path.write_bytes(unbroken[:-30])
    with pytest.raises(ResumeError, match=reason) as caught:
        judge_it(path, source, **changed)
    assert "name another file with -o, or move this one away" in str(caught.value)
    assert path.read_bytes() == unbroken[:-30]


@pytest.mark.parametrize(
    "content", [b"a diary\n", b'{"id": "c0"}\n', b'{"rerank":{}}\n', b'{"my": "minified json"}', b"\x00"]
)
def test_a_file_of_something_else_is_refused_and_untouched(path: Path, source: Source, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(ResumeError, match="does not hold judgments of `medverify rerank`"):
        judge_it(path, source)
    assert path.read_bytes() == content


def test_a_damaged_line_is_told(path: Path, source: Source, unbroken: bytes) -> None:
    lines = unbroken.splitlines(keepends=True)
    lines[2] = lines[2][:40] + b"\n"
    path.write_bytes(b"".join(lines))
    with pytest.raises(ResumeError, match="line 3 is damaged"):
        judge_it(path, source)
    assert path.read_bytes() == b"".join(lines)


def test_two_runs_never_write_to_one_file(path: Path) -> None:
    with JudgmentsFile(path), pytest.raises(ResumeError, match="another run"), JudgmentsFile(path):
        pass


# ---- what an outage left ---------------------------------------------------------------------------------------------


def again(path: Path, source: Source, judge: Reader, waves: int = 99) -> list[int]:
    async def go() -> list[int]:
        counts = list[int]()
        async for count in judge_again(judge, Samples(source, Columns()), identity(judge), path):
            counts.append(count)
            if len(counts) == waves:
                break
        return counts

    return asyncio.run(go())


@pytest.fixture
def broken(tmp_path: Path) -> Source:
    """Waves one and three meet an outage, wave two what no second try would change."""
    words = ["0.1", "down", "0.2", "unclear", "0.3", "0.4", "down", "0.5"]
    return open_source(write_lines(tmp_path / "broken.jsonl", [sample("q", word) for word in words]))


def test_waves_that_met_an_outage_are_judged_again_and_nothing_else(tmp_path: Path, path: Path, broken: Source) -> None:
    judge_it(path, broken, Reader())
    mended = Reader(broken=False)
    assert again(path, broken, mended) == [3, 5]
    assert mended.waves == [["1", "2", "3"], ["7", "8"]]
    judge_it(tmp_path / "never broken", broken, Reader(broken=False))
    assert path.read_bytes() == (tmp_path / "never broken").read_bytes()
    assert again(path, broken, mended) == []
    assert not path.with_name(f"{path.name}.retry").exists()


def test_judging_again_may_be_killed(tmp_path: Path, path: Path, broken: Source) -> None:
    judge_it(path, broken, Reader())
    before = path.read_bytes()
    assert again(path, broken, Reader(broken=False), waves=1) == [3]
    assert path.read_bytes() == before
    mended = Reader(broken=False)
    assert again(path, broken, mended) == [2]
    assert mended.waves == [["7", "8"]]
    judge_it(tmp_path / "never broken", broken, Reader(broken=False))
    assert path.read_bytes() == (tmp_path / "never broken").read_bytes()


def test_a_judge_that_is_gone_ends_the_run(tmp_path: Path, path: Path) -> None:
    words = ["0.1", "down", "0.2", *["down"] * 30]
    source = open_source(write_lines(tmp_path / "x.jsonl", [sample("q", word) for word in words]))
    judge = Reader()
    with pytest.raises(OutageError, match=r"3 waves one after another gave nothing, the last: out of order\."):
        judge_it(path, source, judge)
    assert len(judge.waves) == 4
    assert len(list(entries(path))) == 12


def test_cases_that_cannot_be_judged_for_their_own_sake_do_not_end_it(tmp_path: Path, path: Path) -> None:
    judge_it(path, open_source(write_lines(tmp_path / "x.jsonl", [sample("q", "unclear")] * 20)))
    assert len(list(entries(path))) == 20
