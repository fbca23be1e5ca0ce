import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from rerank_fakes import Reader, many, read_lines, run, sample, write_lines

from configs.appended import ResumeError
from eval.outage import OutageError
from eval.rerank.options import OutputOptions, Pairing
from eval.rerank.run import Output, rerank, write_again
from eval.rerank.samples import Columns, Samples
from eval.rerank.sources import open_source


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "in.jsonl", many(20))


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out.jsonl"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_a_run_leaves(tmp_path: Path, samples: Path, out: Path) -> None:
    judge = Reader()
    done = run(samples, out, judge)
    assert names(tmp_path) == ["in.jsonl", "out.jsonl", "out.jsonl.judgments.jsonl", "out.jsonl.run.json"]
    told = json.loads((tmp_path / "out.jsonl.run.json").read_text())
    assert told["judged"]["judge_id"] == judge.judge_id
    assert told["done"] == done.model_dump()
    assert done.figures.samples == done.lines == len(read_lines(out)) == 20
    assert judge.closed


def test_rejected_rows_are_beside_it(tmp_path: Path, out: Path) -> None:
    rows = [b'{"question": "q', sample("q", "0.5"), sample("q", 7)]
    assert run(write_lines(tmp_path / "in.jsonl", rows), out).rejected == 2
    assert [(row["line"], row["row"]) for row in read_lines(Output(out).rejected)] == [
        (1, '{"question": "q'), (3, '{"question": "q", "trace": 7}')
    ]  # fmt: skip


def again(
    samples: Path, out: Path, judge: Reader | None = None, columns: Columns | None = None, **options: Any
) -> bool:
    """Whether a second run had anything to do."""
    columns = columns or Columns()
    return rerank(
        lambda: judge or Reader(), Samples(open_source(samples), columns), OutputOptions(**options), Output(out)
    )[1]


def test_the_same_run_again_has_nothing_to_do(samples: Path, out: Path) -> None:
    run(samples, out, keep_best=2)
    before, at = out.read_bytes(), out.stat().st_mtime_ns
    judge = Reader()
    assert not again(samples, out, judge, keep_best=2)
    assert judge.waves == []
    assert (out.read_bytes(), out.stat().st_mtime_ns) == (before, at)


def test_an_output_of_another_run_is_refused_and_untouched(samples: Path, out: Path) -> None:
    run(samples, out, keep_best=2)
    before = out.read_bytes()
    for reason, changed in (
        ("keep_best was 2 and is None", {}),
        ("keep_best was 2 and is 1", {"keep_best": 1}),
        ("by another judge", {"keep_best": 2, "judge": Reader(judge_id="b" * 64)}),
        ("--question-column was question and is n", {"keep_best": 2, "columns": Columns(question="n")}),
    ):
        with pytest.raises(ResumeError, match=reason) as caught:
            again(samples, out, **changed)  # type: ignore[arg-type]
        assert "another file with -o, or move this one away" in str(caught.value)
        assert out.read_bytes() == before
    write_lines(samples, many(21))
    with pytest.raises(ResumeError, match="the input has changed since"):
        again(samples, out, keep_best=2)
    assert out.read_bytes() == before


def test_a_file_of_somebody_is_never_overwritten(samples: Path, out: Path) -> None:
    out.write_text("a diary")
    with pytest.raises(ResumeError, match="was not written by `medverify rerank`"):
        Output(out).check_free()
    with pytest.raises(ResumeError, match="was not written by `medverify rerank`"):
        again(samples, out)
    out.unlink()
    run(samples, out)
    out.write_text("a diary")
    Output(out).check_free()  # whose it is can only be told when it is known who judges
    with pytest.raises(ResumeError, match="was changed after it was written"):
        again(samples, out)
    assert out.read_text() == "a diary"


def test_an_output_that_is_gone_is_written_again_without_judging(samples: Path, out: Path) -> None:
    run(samples, out)
    before = out.read_bytes()
    out.unlink()
    judge = Reader()
    assert again(samples, out, judge)
    assert judge.waves == []
    assert out.read_bytes() == before
    out.unlink()  # and what is written may be something else
    assert again(samples, out, judge, keep_best=1)
    assert judge.waves == []
    assert len(read_lines(out)) == 5


def test_a_run_that_was_killed_before_its_very_last_step(samples: Path, out: Path) -> None:
    """Judged again after an outage, it replaces its own output, and was killed between saying so and doing so."""
    run(samples, out)
    whole = out.read_bytes()
    out.rename(Output(out).beside("part"))
    out.write_text("what it was before")
    assert not again(samples, out)
    assert out.read_bytes() == whole


def test_another_output_from_the_same_judgments(tmp_path: Path, samples: Path, out: Path) -> None:
    run(samples, out)
    pairs = Output(tmp_path / "pairs.jsonl")
    options, judgments = OutputOptions(pairs=Pairing.BEST_WORST), Output(out).judgments
    done, made = write_again(Samples(open_source(samples), Columns()), options, pairs, judgments)
    assert made
    assert done.lines == len(read_lines(pairs.path)) == 5
    assert not write_again(Samples(open_source(samples), Columns()), options, pairs, judgments)[1]
    with pytest.raises(ResumeError, match=r"does not hold the judgments of .*: --trace-column was trace and is n"):
        write_again(Samples(open_source(samples), Columns(trace="n")), options, Output(tmp_path / "x.jsonl"), judgments)
    judgments.write_bytes(judgments.read_bytes()[:-3])
    with pytest.raises(ResumeError, match="its run is not finished"):
        write_again(Samples(open_source(samples), Columns()), options, Output(tmp_path / "x.jsonl"), judgments)


def test_the_same_options_in_another_order_are_the_same_question(tmp_path: Path, out: Path) -> None:
    options = {"A": "x", "B": "y"}
    rows = [sample("q", "0.1", options=options), sample("q", "0.9", options=dict(reversed(options.items())))]
    path = write_lines(tmp_path / "in.jsonl", rows)
    assert run(path, out, columns=Columns(options="options"), keep_best=1).lines == 1


def test_an_outage_is_mended_when_asked(tmp_path: Path, out: Path) -> None:
    rows = [*many(4), sample("q", "down"), *many(3)]
    path = write_lines(tmp_path / "in.jsonl", rows)
    assert run(path, out).figures.statuses["engine_failed"] == 1
    assert not again(path, out, Reader(broken=False))
    mended = Reader(broken=False)
    assert run(path, out, mended, retry_failed=True).figures.statuses == {"scored": 8}
    assert mended.waves == [["4", "5", "6"]]
    run(path, tmp_path / "whole.jsonl", Reader(broken=False))
    assert out.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


def test_an_outage_that_was_mended_just_before_a_kill_is_mended_in_the_output(
    tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_lines(tmp_path / "in.jsonl", [*many(4), sample("q", "down"), *many(3)])
    run(path, out)
    with monkeypatch.context() as killed:
        killed.setattr(Output, "make", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run(path, out, Reader(broken=False), retry_failed=True)
    assert run(path, out).figures.statuses == {"scored": 8}
    run(path, tmp_path / "whole.jsonl", Reader(broken=False))
    assert out.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


def test_what_was_made_from_judgments_is_made_again_when_they_are_mended(tmp_path: Path, out: Path) -> None:
    path = write_lines(tmp_path / "in.jsonl", [sample("q", "0.9"), sample("q", "down")])
    pairs, options = Output(tmp_path / "pairs.jsonl"), OutputOptions(pairs=Pairing.ALL)
    run(path, out)
    samples = Samples(open_source(path), Columns())
    assert write_again(samples, options, pairs, Output(out).judgments)[0].lines == 0
    run(path, out, Reader(broken=False), retry_failed=True)
    assert write_again(samples, options, pairs, Output(out).judgments)[0].lines == 1


def test_an_outage_leaves_no_output_and_is_gone_on_from(tmp_path: Path, out: Path) -> None:
    path = write_lines(tmp_path / "in.jsonl", [sample("q", "down")] * 12)
    with pytest.raises(OutageError):
        run(path, out)
    assert not out.exists()
    assert run(path, out, Reader(broken=False), retry_failed=True).figures.statuses == {"scored": 12}


def test_a_run_that_is_killed_again_and_again_ends_with_the_same_file(tmp_path: Path) -> None:
    samples, moments = write_lines(tmp_path / "in.jsonl", [*many(60), b"{", *many(60)]), random.Random(3)
    whole, out = tmp_path / "whole.jsonl", tmp_path / "out.jsonl"
    run(samples, whole)
    command = [sys.executable, str(Path(__file__).with_name("rerank_until_killed.py")), str(samples), str(out)]
    kills = 0
    for _ in range(3):
        journal, before = Output(out).judgments, 0
        if journal.exists():
            before = journal.stat().st_size
        with subprocess.Popen(command) as process:
            while process.poll() is None and not (journal.exists() and journal.stat().st_size > before):
                time.sleep(0.005)
            time.sleep(moments.uniform(0.0, 0.1))
            process.send_signal(signal.SIGKILL)
            kills += process.wait(timeout=60) == -signal.SIGKILL
        assert not out.exists()
    assert kills == 3
    subprocess.run(command, check=True, timeout=60)
    assert out.read_bytes() == whole.read_bytes()
    for mine, theirs in zip(names_of(out), names_of(whole), strict=True):
        if not mine.name.endswith("run.json"):
            assert mine.read_bytes() == theirs.read_bytes()


def names_of(out: Path) -> list[Path]:
    return sorted(out.parent.glob(f"{out.name}*"))
