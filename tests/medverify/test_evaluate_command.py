"""`medverify eval` without a model: votes, scores made again, comparisons, and what is refused."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eval.journal import to_line
from eval.report.schema import Report
from verifier.types import Case, Judgment, Status, StopReason, Usage

Cli = Callable[..., Any]

TRACES = [
    ("q0", "A"),
    ("q0", "A"),
    ("q0", "B"),
    ("q1", "B"),
    ("q1", "A"),
    ("q1", None),
    ("q2", "B"),
    ("q2", "B"),
    ("q2", "B"),
]


def write(prefix: Path) -> Path:
    """Three questions of three traces; the right answer is A throughout."""
    questions = [
        {"id": f"q{i}", "question": f"Q{i}?", "options": {"A": "a", "B": "b"}, "answer": "A"} for i in range(3)
    ]
    traces = [
        {
            "qid": qid,
            "trace_id": f"{qid}#{i}",
            "reasoning": f"So {answer}.",
            "pred": answer,
            "gold": "A",
            "generator": "m",
        }
        | {"trace_label": None if answer is None else int(answer == "A")}
        for i, (qid, answer) in enumerate(TRACES)
    ]
    for part, rows in (("questions", questions), ("traces", traces)):
        Path(f"{prefix}.{part}.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    return prefix


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    return write(tmp_path / "mine")


def judged(pack: Path) -> list[Judgment]:
    """What a judge said that knows, and failed once."""
    from verifier.packs import read_pack

    return [
        Judgment(
            id=one.case.id,
            status=Status.TIMEOUT if number == 8 else Status.SCORED,
            verdict=None if number == 8 else int(one.label == 1),
            p_correct=None if number == 8 else 0.9 if one.label == 1 else 0.1,
            label_mass=None if number == 8 else 1.0,
            forced=False,
            reasoning="thought",
            searches=[],
            stop_reason=StopReason.DEADLINE if number == 8 else StopReason.ANSWERED,
            turns=1,
            format_score=None,
            detail="too [slow]" if number == 8 else "",
            usage=Usage(policy_tokens=5),
            latency_ms=None,
            seed=0,
            case_digest=one.case.digest,
            judge_id="j" * 64,
        )
        for number, one in enumerate(read_pack(pack))
    ]


@pytest.fixture
def run_folder(pack: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    (folder / "judgments").mkdir(parents=True)
    (folder / "judgments" / "mine.jsonl").write_bytes(b"".join(map(to_line, judged(pack))))
    run = {
        "format": 1, "medverify": "1", "packs": [{"name": "mine", "prefix": str(pack)}], "traces": None, "questions": None,
        "sample_seed": 0, "scorers": [{"scorer": "judge", "suffix": "", "judge_id": "j", "seed": 0}],
        "judge": {"model": "fake", "mode": "free", "judge_id": "j", "index": "starter", "seeds": [0]}, "settings": {},
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(run))
    return folder


def test_votes_of_an_unseen_pack(cli: Cli, pack: Path, tmp_path: Path) -> None:
    result = cli("eval", pack, "--no-judge", "-o", tmp_path / "out")
    assert result.exit_code == 0
    for figure in ("0.333", "0.500", "0.667"):  # 3 of 9; (1 + 1/2 + 0) / 3; 2 of 3
        assert figure in result.stdout
    (found,) = Report.model_validate_json((tmp_path / "out" / "report.json").read_bytes()).packs
    (votes,) = found.votes
    assert votes.mean.value == pytest.approx(3 / 9)
    assert votes.majority.value == pytest.approx(1.5 / 3)
    assert votes.any_right.value == pytest.approx(2 / 3)
    assert (tmp_path / "out" / "report.html").exists()


@pytest.fixture
def packs(repository: Path) -> Path:
    folder = repository.parent / "shared" / "data" / "packs"
    if not folder.is_dir():
        pytest.skip("the packs are not beside this checkout")
    return folder


def test_votes_of_a_pack_are_as_stated(cli: Cli, packs: Path, tmp_path: Path) -> None:
    assert cli("eval", packs / "usmle_dev100_n29", "--no-judge", "-o", tmp_path).exit_code == 0
    votes = Report.model_validate_json((tmp_path / "report.json").read_bytes()).packs[0].votes[0]
    # The majority is right on 44.5 of 99 questions, 0.44949, which is 0.450 only if it is rounded twice.
    assert (votes.mean.value, votes.any_right.value) == pytest.approx((0.410, 0.929), abs=0.0005)
    assert votes.majority.value == pytest.approx(44.5 / 99)


@pytest.mark.parametrize(
    ("name", "stated"),
    [("medmcqa_dev1000_n9", (0.493, 0.596, 0.926)), ("pubmedqa_other500_ctx", (0.727, 0.788, 0.892))],
)
def test_votes_of_other_packs_are_as_stated(packs: Path, name: str, stated: tuple[float, ...]) -> None:
    from eval.columns import join
    from eval.evaluation.selection import votes
    from verifier.packs import read_pack

    found = votes(join(read_pack(packs / name)), "all")
    assert (found.mean.value, found.majority.value, found.any_right.value) == pytest.approx(stated, abs=0.0005)


def test_a_sample_of_questions_and_traces(cli: Cli, pack: Path, tmp_path: Path) -> None:
    assert cli("eval", pack, "--no-judge", "--questions", "2", "--traces", "2", "-o", tmp_path / "out").exit_code == 0
    (found,) = Report.model_validate_json((tmp_path / "out" / "report.json").read_bytes()).packs
    assert (found.composition.questions, found.composition.traces) == (2, 4)


def test_scores_are_made_again_from_what_is_kept(cli: Cli, run_folder: Path) -> None:
    result = cli("eval", "--rescore", "-o", run_folder)
    assert result.exit_code == 1  # one trace was not judged
    assert "too [slow]" in " ".join(result.stdout.split())
    report = Report.model_validate_json((run_folder / "report.json").read_bytes())
    figures = {row.scorer: row for row in report.packs[0].verification}
    assert figures["judge"].figures["AUROC"].value == 1.0
    assert figures["judge"].traces == 7
    assert (run_folder / "figures" / "mine.roc.svg").exists()
    before = {file: file.read_bytes() for file in run_folder.rglob("*") if file.is_file()}
    cli("eval", "--rescore", "-o", run_folder)
    assert {file: file.read_bytes() for file in run_folder.rglob("*") if file.is_file()} == before


def test_the_report_of_a_run_that_was_broken_off_says_so(cli: Cli, run_folder: Path) -> None:
    path = run_folder / "judgments" / "mine.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:4]))
    result = cli("eval", "--rescore", "-o", run_folder)
    assert result.exit_code == 1
    assert " ".join(result.stdout.split()).startswith("This run is unfinished: 4 of 9 traces judged or tried.")
    (found,) = Report.model_validate_json((run_folder / "report.json").read_bytes()).packs
    best = next(row for row in found.selection if (row.strategy, row.scorer) == ("best-of-n", "judge"))
    assert best.accuracy[2].value == pytest.approx(1.0)  # on the first question alone


def test_scores_are_made_again_where_torch_is_not_installed(run_folder: Path, environment: dict[str, str]) -> None:
    """Nor anything else that runs a model or searches an index."""
    absent = ("torch", "transformers", "faiss", "numba", "bm25s", "gguf", "tokenizers")
    program = (
        f"import sys\nfor name in {absent!r}: sys.modules[name] = None\n"
        "from medverify.cli import main\n"
        f"sys.argv = ['medverify', 'eval', '--rescore', '-o', {str(run_folder)!r}]\nmain()"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 1, done.stderr
    assert (run_folder / "report.html").exists()


def test_a_pack_that_has_moved_is_named_again(cli: Cli, run_folder: Path, pack: Path, tmp_path: Path) -> None:
    for file in pack.parent.glob("mine.*.jsonl"):
        file.unlink()
    result = cli("eval", "--rescore", "-o", run_folder)
    assert result.exit_code == 2
    assert "no such file" in result.stderr
    (tmp_path / "elsewhere").mkdir()
    assert cli("eval", write(tmp_path / "elsewhere" / "mine"), "--rescore", "-o", run_folder).exit_code == 1
    assert cli("eval", write(tmp_path / "other"), "--rescore", "-o", run_folder).exit_code == 2


def test_a_report_without_a_judge_does_not_take_the_place_of_a_judge_s(cli: Cli, run_folder: Path, pack: Path) -> None:
    cli("eval", "--rescore", "-o", run_folder)
    before = (run_folder / "report.json").read_bytes()
    result = cli("eval", pack, "--no-judge", "-o", run_folder)
    assert result.exit_code == 2
    assert "holds the report of a judge" in result.stderr
    assert (run_folder / "report.json").read_bytes() == before


def test_two_runs_side_by_side(cli: Cli, run_folder: Path, tmp_path: Path) -> None:
    result = cli("eval", "--compare", run_folder, run_folder, "-o", tmp_path / "both")
    assert result.exit_code == 0
    assert "AUROC" in result.stdout
    assert (tmp_path / "both" / "comparison.html").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["eval"], "name a pack"),
        (["eval", "PACK"], "name the folder of the run with -o"),
        (["eval", "PACK", "PACK", "--no-judge"], "two packs are called mine"),
        (["eval", "nowhere", "--no-judge"], "no such file: nowhere.questions.jsonl"),
        (["eval", "--rescore"], "name the folder of the run with -o"),
        (["eval", "--rescore", "-o", "nowhere"], "is nowhere the folder of an evaluation?"),
        (["eval", "--compare", "nowhere", "nowhere"], "is nowhere the folder of an evaluation?"),
    ],
)
def test_what_cannot_be_evaluated_is_bad_input(cli: Cli, pack: Path, arguments: list[str], message: str) -> None:
    result = cli(*(str(pack) if argument == "PACK" else argument for argument in arguments))
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


def test_a_fault_among_the_judgments_is_named(cli: Cli, run_folder: Path) -> None:
    path = run_folder / "judgments" / "mine.jsonl"
    first = json.loads(path.read_bytes().splitlines()[0])
    path.write_text(json.dumps({**first, "case_digest": Case(id="x", question="q", trace="t").digest}) + "\n")
    result = cli("eval", "--rescore", "-o", run_folder)
    assert result.exit_code == 2
    assert "was judged when its question or trace was another" in result.stderr
