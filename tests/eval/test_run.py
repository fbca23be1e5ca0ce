import asyncio
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from calibration_fakes import calibration
from eval_fakes import cases, judgment, scripted_judge

from configs.appended import OutputError, ResumeError
from eval.journal import to_line
from eval.outage import OutageError
from eval.quality import read_judgments
from eval.run import Journal, judge_waves
from verifier.calibration import Temperature
from verifier.judge import Judge
from verifier.types import Case, Judgment, Status

CASES = cases(8)  # waves of three, three and two


def run(path: Path, judge: Judge | None = None, todo: Sequence[Case] = CASES, waves: int = 99) -> bytes:
    """A run, from wherever the file stands, that ends after so many waves; gives the file's content."""
    judge = judge or scripted_judge()

    async def judge_them(journal: Journal, done: int) -> None:
        left = waves
        async for wave in judge_waves(judge, todo, done):
            if left == 0:
                return
            journal.append(wave)
            left -= 1

    with Journal(path) as journal:
        asyncio.run(judge_them(journal, len(journal.resume(judge, todo))))
    return path.read_bytes()


def resume(path: Path, judge: Judge, todo: Sequence[Case], *, retry_failed: bool = False) -> list[Judgment]:
    """What stays of the file when a run goes on."""
    with Journal(path) as journal:
        return journal.resume(judge, todo, retry_failed=retry_failed)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "judgments.jsonl"


@pytest.fixture
def unbroken(tmp_path: Path) -> bytes:
    return run(tmp_path / "unbroken.jsonl")


async def test_waves_keep_the_order_and_their_size() -> None:
    judge = scripted_judge()
    waves = [[written.id for written in wave] async for wave in judge_waves(judge, CASES)]
    assert waves == [["c0", "c1", "c2"], ["c3", "c4", "c5"], ["c6", "c7"]]
    waves = [[written.id for written in wave] async for wave in judge_waves(judge, CASES, done=6)]
    assert waves == [["c6", "c7"]]
    assert [wave async for wave in judge_waves(judge, CASES, done=8)] == []


def test_a_line_holds_a_whole_judgment_and_no_clock(path: Path) -> None:
    run(path)
    judgments = read_judgments(path)
    assert [written.id for written in judgments] == [case.id for case in CASES]
    assert [written.case_digest for written in judgments] == [case.digest for case in CASES]
    assert len({written.p_correct for written in judgments}) == len(CASES)
    for written in judgments:
        assert written.status is Status.SCORED
        assert written.searches
        assert written.latency_ms is None
        assert all(search.latency_ms is None for search in written.searches)


def test_a_second_run_gives_the_same_bytes(path: Path, unbroken: bytes) -> None:
    assert run(path) == unbroken
    assert run(path) == unbroken  # and one that finds all done adds nothing


def test_a_case_that_fails_is_written_as_what_it_is(path: Path) -> None:
    todo = [*CASES[:1], Case(id="x", question="trouble", trace="t"), *CASES[1:]]
    run(path, todo=todo)
    judgments = read_judgments(path)
    assert [written.status for written in judgments].count(Status.SCORED) == len(CASES)
    assert judgments[1].status is Status.ENGINE_FAILED
    assert judgments[1].p_correct is judgments[1].verdict is None


@pytest.mark.parametrize("waves", [0, 1, 2])
def test_a_run_that_ended_between_waves_goes_on(path: Path, unbroken: bytes, waves: int) -> None:
    assert unbroken.startswith(run(path, waves=waves))
    assert run(path) == unbroken


def test_only_what_is_missing_is_judged_again(path: Path) -> None:
    run(path, waves=2)
    judge = scripted_judge()
    run(path, judge)
    assert len(judge.engine.sequences) == 2


def test_a_run_cut_at_any_byte_comes_out_the_same(path: Path, unbroken: bytes) -> None:
    """Torn lines are cut off and incomplete waves judged again, wherever the write was interrupted."""
    for end in [*range(0, len(unbroken), 97), *range(len(unbroken) - 3, len(unbroken))]:
        path.write_bytes(unbroken[:end])
        kept = resume(path, scripted_judge(), CASES)
        assert len(kept) in (0, 3, 6)
        assert path.read_bytes() == b"".join(map(to_line, kept))
        assert run(path) == unbroken


def test_what_follows_the_last_line_is_cut(path: Path, unbroken: bytes) -> None:
    path.write_bytes(unbroken + b'{"id": "c8", "sta')
    assert len(resume(path, scripted_judge(), CASES)) == 8
    assert path.read_bytes() == unbroken


def test_more_cases_may_be_added_at_the_end(path: Path) -> None:
    """The last wave was complete for the shorter file only: it is judged again, in its new company."""
    run(path)
    longer = cases(10)
    assert run(path, todo=longer) == run(path.with_name("whole"), todo=longer)


def changed(case: Case) -> Case:
    return case.model_copy(update={"trace": case.trace.model_copy(update={"text": "Another trace."})})


@pytest.mark.parametrize(
    ("judge", "todo", "reason"),
    [
        (lambda: scripted_judge(max_turns=5), CASES, r"line 1 is by another judge \(\w{12}…, now \w{12}…\)"),
        (lambda: scripted_judge(seed=1), CASES, "line 1 has seed 0, not 1"),
        (
            scripted_judge,
            [*CASES[:4], changed(CASES[4]), *CASES[5:]],
            "line 5 judges 'c4', not the input's 'c4' as it is",
        ),
        (scripted_judge, [CASES[1], CASES[0], *CASES[2:]], "line 1 judges 'c0', not the input's 'c1'"),
        (scripted_judge, CASES[:7], "it holds 8 judgments for 7 cases"),
    ],
    ids=["another judge", "another seed", "a changed case", "another order", "too long"],
)
def test_a_file_of_another_run_is_refused_and_untouched(
    path: Path, unbroken: bytes, judge: Callable[[], Judge], todo: list[Case], reason: str
) -> None:
    path.write_bytes(unbroken + b"torn")
    with pytest.raises(ResumeError, match=reason) as caught:
        resume(path, judge(), todo)
    assert str(path) in str(caught.value)
    assert "Name another file with -o, or move this one away." in str(caught.value)
    assert path.read_bytes() == unbroken + b"torn"


@pytest.mark.parametrize("content", [b'{"my": "minified json"}', b"a note", b'{"id":"c0","status"', b'{"idx": 1'])
def test_a_file_without_a_whole_line_is_refused_unless_it_begins_like_a_judgment(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    if content.startswith(b'{"id":'):
        assert resume(path, scripted_judge(), CASES) == []
        return
    with pytest.raises(ResumeError, match="beginning of a judgment"):
        resume(path, scripted_judge(), CASES)
    assert path.read_bytes() == content


@pytest.mark.parametrize("content", [b"a diary\n", b"\n", b'{"id": "c0"}\n', b"\xff\x00\n", b'{"status": "scored"}\n{'])
def test_a_file_of_something_else_is_refused_and_untouched(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(ResumeError, match="line 1 is not a judgment"):
        resume(path, scripted_judge(), CASES)
    assert path.read_bytes() == content


def test_a_place_that_cannot_be_written_is_told_before_the_first_wave(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        resume(tmp_path / "no such folder" / "out.jsonl", scripted_judge(), CASES)
    with pytest.raises(OutputError, match="not a regular file"):
        resume(tmp_path, scripted_judge(), CASES)


def test_a_judgment_is_one_line() -> None:
    line = to_line(judgment("x\ny\u2028é", 0.25))
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert Judgment.model_validate_json(line) == judgment("x\ny\u2028é", 0.25)


def test_a_run_that_is_killed_again_and_again_ends_with_the_same_file(path: Path) -> None:
    count, moments = 60, random.Random(7)
    command = [sys.executable, str(Path(__file__).with_name("run_until_killed.py")), str(path), str(count)]
    whole = path.with_name("whole.jsonl")
    subprocess.run([*command[:2], str(whole), str(count)], check=True, capture_output=True, timeout=60)
    assert len(read_judgments(whole)) == count

    starts = []
    for done in (9, 21, 33):  # by progress and not by the clock: a machine may be slow
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout
            starts.append(int(process.stdout.readline()))
            while process.poll() is None and path.read_bytes().count(b"\n") < done:
                time.sleep(0.001)
            time.sleep(moments.uniform(0, 0.02))  # anywhere in a wave
            process.send_signal(signal.SIGKILL)
            assert process.wait(timeout=60) == -signal.SIGKILL, "the run was too quick to be killed"
            assert whole.read_bytes().startswith(b"\n".join(path.read_bytes().split(b"\n")[:-1]))
    assert starts[0] == 0
    assert 0 < starts[1] < starts[2]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    assert path.read_bytes() == whole.read_bytes()
    assert sorted(file.name for file in path.parent.iterdir()) == sorted([path.name, whole.name])


def test_two_runs_never_write_to_one_file(path: Path) -> None:
    with Journal(path), pytest.raises(ResumeError, match="another run"), Journal(path):
        pass
    with Journal(path):  # free again
        pass


def lose(path: Path, *places: int) -> None:
    """Have an outage hit these lines of a finished file."""
    lines = [Judgment.model_validate_json(line) for line in path.read_bytes().splitlines()]
    lost = {"status": Status.ENGINE_FAILED, "verdict": None, "p_correct": None, "label_mass": None}
    for place in places:
        lines[place] = lines[place].model_copy(update=lost)
    path.write_bytes(b"".join(map(to_line, lines)))


class Counting(Judge):
    """Remembers what it was asked to judge."""

    asked: tuple[str, ...] = ()

    async def verify_together(self, cases: Sequence[Case], seed: int | None = None) -> list[Judgment]:
        self.asked += tuple(case.id for case in cases)
        return await super().verify_together(cases, seed)


class Gone(Judge):
    """Ends after two cases."""

    left = 2

    async def verify_together(self, cases: Sequence[Case], seed: int | None = None) -> list[Judgment]:
        judgments = await super().verify_together(cases, seed)
        if (left := self.left) > 0:
            self.left = left - 1
            return judgments
        lost = {
            "status": Status.ENGINE_FAILED,
            "verdict": None,
            "p_correct": None,
            "label_mass": None,
            "detail": "gone",
        }
        return [one.model_copy(update=lost) for one in judgments]


def judge_again(path: Path, judge: Judge, waves: int = 99, *, retry_failed: bool = True) -> None:
    async def judge_all() -> None:
        with Journal(path) as journal:
            done = journal.resume(judge, CASES, retry_failed=retry_failed)
            left = waves
            async for wave in judge_waves(judge, CASES, len(done), journal):
                journal.append(wave)
                if (left := left - 1) == 0:
                    return

    asyncio.run(judge_all())


def test_only_waves_that_an_outage_hit_are_judged_again(path: Path, unbroken: bytes) -> None:
    run(path)
    lose(path, 1)
    again = scripted_judge(kind=Counting)
    judge_again(path, again)
    assert again.asked == tuple(case.id for case in CASES[:3])
    assert path.read_bytes() == unbroken
    assert not path.with_name(f"{path.name}.before-retry").exists()


def test_without_the_wish_nothing_is_judged_again(path: Path) -> None:
    run(path)
    lose(path, 4)
    before = path.read_bytes()
    assert len(resume(path, scripted_judge(), CASES)) == 8
    assert path.read_bytes() == before


@pytest.mark.parametrize("waves", [1, 2])
@pytest.mark.parametrize("flag", [True, False])
def test_a_retry_that_is_killed_loses_nothing(path: Path, unbroken: bytes, waves: int, flag: bool) -> None:
    run(path)
    lose(path, 0)
    judge_again(path, scripted_judge(), waves)
    again = scripted_judge(kind=Counting)
    judge_again(path, again, retry_failed=flag)
    assert again.asked == ()  # the first wave was judged before the kill, and the others were never lost
    assert path.read_bytes() == unbroken
    assert not path.with_name(f"{path.name}.before-retry").exists()


def test_a_retry_that_is_killed_at_once_loses_nothing(path: Path, unbroken: bytes) -> None:
    run(path)
    lose(path, 0, 7)
    assert resume(path, scripted_judge(), CASES, retry_failed=True) == []
    again = scripted_judge(kind=Counting)
    judge_again(path, again)
    assert again.asked == tuple(case.id for case in (*CASES[:3], *CASES[6:]))
    assert path.read_bytes() == unbroken


def test_a_judge_that_is_gone_ends_the_run_and_what_it_judged_stays(path: Path) -> None:
    judge = scripted_judge(wave=1, kind=Gone)
    with pytest.raises(OutageError, match=r"3 waves one after another gave nothing, the last: gone\. .*--retry-failed"):
        judge_again(path, judge)
    lines = [Judgment.model_validate_json(line) for line in path.read_bytes().splitlines()]
    assert [line.status for line in lines] == [Status.SCORED] * 2 + [Status.ENGINE_FAILED] * 3
    judge_again(path, scripted_judge(wave=1))
    assert path.read_bytes() == run(path.with_name("whole.jsonl"), scripted_judge(wave=1))


def test_what_another_judge_made_before_is_refused(path: Path) -> None:
    run(path)
    lose(path, 0)
    resume(path, scripted_judge(), CASES, retry_failed=True)
    kept = path.with_name(f"{path.name}.before-retry")
    kept.write_bytes(kept.read_bytes().replace(CASES[5].id.encode(), b"another"))
    with pytest.raises(ResumeError, match="another"):
        resume(path, scripted_judge(), CASES)


@pytest.mark.parametrize("device", ["/dev/null", "/dev/full", "/dev/zero"])
def test_a_device_is_no_output_file(device: str) -> None:
    with pytest.raises(OutputError, match="not a regular file"), Journal(Path(device)):
        pass


def test_a_pipe_is_no_output_file(path: Path) -> None:
    os.mkfifo(path)
    with pytest.raises(OutputError, match="not a regular file"), Journal(path):
        pass


@contextmanager
def full_beyond(size: int) -> Iterator[None]:
    """No file may grow beyond so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_told_and_the_run_goes_on_when_there_is_space(path: Path, unbroken: bytes) -> None:
    wave = sum(map(len, unbroken.splitlines(keepends=True)[:3]))
    for size in (0, 10, wave - 1, wave + 1, len(unbroken) - 1):
        path.unlink(missing_ok=True)
        with full_beyond(size), pytest.raises(OutputError, match=r"File too large.*run the same command again"):
            run(path)
        assert unbroken.startswith(path.read_bytes())
        assert path.read_bytes()[-1:] in (b"", b"\n")  # no torn line
        assert run(path) == unbroken


def test_a_retry_without_space_for_the_copy_leaves_the_file_as_it_was(path: Path) -> None:
    run(path)
    lines = [Judgment.model_validate_json(line) for line in path.read_bytes().splitlines()]
    lost = {"status": Status.ENGINE_FAILED, "verdict": None, "p_correct": None, "label_mass": None}
    path.write_bytes(b"".join(map(to_line, [*lines[:7], lines[7].model_copy(update=lost)])))
    before = path.read_bytes()
    with full_beyond(100), pytest.raises(OutputError, match="File too large"):
        resume(path, scripted_judge(), CASES, retry_failed=True)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


# ---- calibrated runs ---------------------------------------------------------------------------------------------------


def calibrated(judge: Judge, slope: float = 0.5) -> Judge:
    made = calibration(judge.judge_id, Temperature(slope=slope))
    return Judge(judge.engine, judge.retriever, judge.prompt, judge.mode, judge.settings, calibration=made)


def test_a_calibrated_run_goes_on_with_the_same_calibration(path: Path, unbroken: bytes) -> None:
    whole = run(path.with_name("whole"), calibrated(scripted_judge()))
    run(path, calibrated(scripted_judge()), waves=1)
    assert run(path, calibrated(scripted_judge())) == whole
    made = read_judgments(path)
    assert all(written.p_calibrated is not None for written in made)
    plain = [written.model_copy(update={"p_calibrated": None}) for written in made]
    assert b"".join(map(to_line, plain)) == unbroken


def test_a_file_never_mixes_calibrations(path: Path, unbroken: bytes) -> None:
    made = run(path.with_name("whole"), calibrated(scripted_judge()))
    for content, judge in (
        (unbroken, calibrated(scripted_judge())),
        (made, scripted_judge()),
        (made, calibrated(scripted_judge(), 0.6)),
    ):
        path.write_bytes(content)
        with pytest.raises(ResumeError, match="line 1 was judged with another calibration"):
            resume(path, judge, CASES)
        assert path.read_bytes() == content


def test_a_file_from_before_there_were_calibrations_goes_on(path: Path, unbroken: bytes) -> None:
    path.write_bytes(unbroken.replace(b'"p_calibrated":null,', b""))
    assert b"p_calibrated" not in path.read_bytes()
    assert len(resume(path, scripted_judge(), CASES)) == 8
    longer = cases(10)
    run(path, todo=longer)
    whole = run(path.with_name("whole"), todo=longer)
    assert read_judgments(path) == read_judgments(path.with_name("whole"))
    assert path.read_bytes() == whole.replace(b'"p_calibrated":null,', b"", 6)  # two whole waves stayed as they were
