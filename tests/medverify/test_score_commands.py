"""`medverify score` and `medverify calibrate`."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from calibration_fakes import calibration
from front_door_fakes import judgment

from eval.journal import to_line
from verifier.calibration import Calibration
from verifier.types import Judgment

pytest.importorskip("numpy")
pytest.importorskip("sklearn")

Cli = Callable[..., Any]


def write(path: Path, judgments: Sequence[Judgment]) -> Path:
    path.write_bytes(b"".join(map(to_line, judgments)))
    return path


def write_pack(prefix: Path, questions: int, rows: Sequence[dict[str, Any]]) -> Path:
    """Cases as `front_door_fakes.judgment` judges them."""
    asked = [{"id": f"q{i}", "question": "q"} for i in range(questions)]
    for part, lines in (("questions", asked), ("traces", rows)):
        Path(f"{prefix}.{part}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return prefix


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    rows = [
        {
            "qid": f"q{i}",
            "trace_id": f"q{i}#1",
            "reasoning": "r",
            "trace_label": i % 2,
            "generator": "[x]" if i else "y",
        }
        for i in range(6)
    ]
    rows += [{"qid": "q0", "trace_id": "q0#2", "reasoning": "r", "trace_label": None}]
    return write_pack(tmp_path / "pack", 6, rows)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = [judgment(f"q{i}#1", 0.9 if i in (1, 3, 4) else 0.1) for i in range(5)]
    return write(tmp_path / "judgments.jsonl", [*made, judgment("q5#1", None), judgment("q0#2", 0.9)])


# ---- score -----------------------------------------------------------------------------------------------------------


def test_score(cli: Cli, path: Path, pack: Path) -> None:
    result = cli("score", path, "--pack", pack)
    assert result.exit_code == 0
    for name in ("AUROC", "AUPRC", "Brier", "log loss", "ECE", "smooth ECE", "AURC", "balanced accuracy"):
        assert name in result.stdout
    assert "0.800" in result.stdout  # accuracy
    assert "5 judged with a label, 2 of them right answers; 1 not judged; 1 without a label" in result.stdout


def test_score_by_generator(cli: Cli, path: Path, pack: Path) -> None:
    result = cli("score", path, "--pack", pack, "--by", "generator")
    assert result.exit_code == 0
    assert "all traces" in result.stdout
    assert "[x]" in result.stdout
    found = json.loads(cli("score", path, "--pack", pack, "--by", "generator", "--json").stdout)
    assert {name: part["scored"] for name, part in found["generators"].items()} == {"[x]": 4, "y": 1}


def test_score_for_programs(cli: Cli, path: Path, pack: Path) -> None:
    found = json.loads(cli("score", path, "--pack", pack, "--json", "--by", "generator").stdout)
    assert found["all"]["estimates"]["accuracy"]["value"] == pytest.approx(0.8)
    assert found["all"]["not_judged"] == 1
    assert found["against"] is None
    assert found["generators"]["y"]["estimates"]["AUROC"] == {"value": None, "low": None, "high": None}


def test_score_against_another_judge(cli: Cli, path: Path, pack: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other.jsonl", [judgment(f"q{i}#1", 0.9 if i % 2 else 0.1) for i in range(4)])
    result = cli("score", path, "--pack", pack, "--against", other)
    assert result.exit_code == 0
    assert "4 traces of 4 questions that both have judged" in result.stdout
    found = json.loads(cli("score", path, "--pack", pack, "--against", other, "--json").stdout)["against"]
    assert found["differences"]["accuracy"]["second"] == 1.0
    assert found["differences"]["accuracy"]["difference"]["value"] == 0


def test_score_with_abstention(cli: Cli, path: Path, pack: Path) -> None:
    result = cli("score", path, "--pack", pack, "--accuracy", "0.8", "--accuracy", "0.99")
    assert result.exit_code == 0
    assert "max(p, 1 - p) ≥ 0.900" in result.stdout
    assert "never reached" in result.stdout
    found = json.loads(cli("score", path, "--pack", pack, "--accuracy", "0.99", "--json").stdout)["abstention"]
    assert found == [
        {"wished": 0.99, "threshold": None, "coverage": found[0]["coverage"], "accuracy": found[0]["accuracy"]}
    ]


def test_score_with_a_calibration(cli: Cli, path: Path, pack: Path, tmp_path: Path) -> None:
    file = tmp_path / "calibration.json"
    file.write_text(calibration("j").to_json())
    plain = json.loads(cli("score", path, "--pack", pack, "--json").stdout)["all"]["estimates"]
    found = json.loads(cli("score", path, "--pack", pack, "--json", "--calibration", file).stdout)["all"]["estimates"]
    assert found["AUROC"] == plain["AUROC"]
    assert found["Brier"]["value"] == pytest.approx((4 * 0.25**2 + 0.75**2) / 5)
    file.write_text(calibration("k").to_json())
    refused = cli("score", path, "--pack", pack, "--calibration", file)
    assert refused.exit_code == 2
    assert "fitted for the judge k…" in refused.stderr


@pytest.mark.parametrize(
    ("content", "of_score", "of_calibrate"),
    [
        (to_line(judgment("z")), "'z' is not in the pack", "'z' is not in the pack"),
        (b"junk\n", "judgments.jsonl, line 1: not a judgment", "judgments.jsonl, line 1: not a judgment"),
        (b"", "nothing to measure", "0 right and 0 wrong traces"),
        (None, "no such file", "no such file"),
    ],
)
def test_what_cannot_be_scored_is_bad_input(
    cli: Cli, tmp_path: Path, pack: Path, content: bytes | None, of_score: str, of_calibrate: str
) -> None:
    path, file = tmp_path / "judgments.jsonl", tmp_path / "calibration.json"
    if content is not None:
        path.write_bytes(content)
    for message, command in ((of_score, ["score", path]), (of_calibrate, ["calibrate", path, "-o", file])):
        result = cli(*command, "--pack", pack)
        assert result.exit_code == 2
        assert message in result.stderr
        assert not result.stdout
    assert not file.exists()


# ---- calibrate -------------------------------------------------------------------------------------------------------


@pytest.fixture
def overconfident(tmp_path: Path) -> tuple[Path, Path]:
    """Four traces of each of 60 questions: said 0.95 where three in four are right, and 0.05 where one is."""
    rows, made = [], []
    for question in range(60):
        for trace in range(4):
            id, high = f"q{question}#{trace}", question % 2 == 0
            rows.append(
                {"qid": f"q{question}", "trace_id": id, "reasoning": "r", "trace_label": int((trace > 0) == high)}
            )
            made.append(judgment(id, 0.95 if high else 0.05))
    return write(tmp_path / "made.jsonl", made), write_pack(tmp_path / "dev", 60, rows)


def test_calibrate(cli: Cli, tmp_path: Path, overconfident: tuple[Path, Path]) -> None:
    (path, pack), file = overconfident, tmp_path / "calibration.json"
    result = cli("calibrate", path, "--pack", pack, "-o", file, "--method", "temperature")
    assert result.exit_code == 0, result.stderr
    assert (
        "temperature, fitted on 240 traces of 60 questions, 120 of them right; `after` is out of fold" in result.stdout
    )
    assert "smooth ECE" in result.stdout
    assert "may not be worth using" not in result.stdout
    made = Calibration.load(file)
    assert made.judge_id == "j"
    assert made.apply(0.95) == pytest.approx(0.75, abs=0.02)
    assert made.fitted.pack == "dev"
    assert [one.name for one in tmp_path.iterdir() if one.name.endswith(".part")] == []


def test_calibrate_for_programs(cli: Cli, tmp_path: Path, overconfident: tuple[Path, Path]) -> None:
    (path, pack), file = overconfident, tmp_path / "calibration.json"
    found = json.loads(cli("calibrate", path, "--pack", pack, "-o", file, "--json").stdout)
    assert found["method"] in ("temperature", "beta")
    assert found["figures"]["Brier"]["before"]["value"] == pytest.approx(0.75 * 0.05**2 + 0.25 * 0.95**2)
    assert found["figures"]["Brier"]["after"]["value"] == pytest.approx(0.1875, abs=0.002)
    assert found["figures"]["Brier"]["change"]["high"] < 0


def test_a_calibration_is_not_scored_on_its_own_questions(
    cli: Cli, tmp_path: Path, overconfident: tuple[Path, Path]
) -> None:
    (path, pack), file = overconfident, tmp_path / "calibration.json"
    assert cli("calibrate", path, "--pack", pack, "-o", file).exit_code == 0
    result = cli("score", path, "--pack", pack, "--calibration", file)
    assert result.exit_code == 2
    assert "fitted on 1 of these 1 questions" in result.stderr  # by content, and the fakes all ask the same


def test_a_calibration_that_does_not_help_says_so(cli: Cli, tmp_path: Path) -> None:
    rows, made = [], []
    for row in range(200):  # honest already
        rows.append({"qid": f"q{row}", "trace_id": f"q{row}#1", "reasoning": "r", "trace_label": int(row % 4 > 0)})
        made.append(judgment(f"q{row}#1", 0.75))
    path, pack = write(tmp_path / "made.jsonl", made), write_pack(tmp_path / "dev", 200, rows)
    result = cli("calibrate", path, "--pack", pack, "-o", tmp_path / "calibration.json")
    assert result.exit_code == 0
    assert "may not be worth using" in result.stdout


def test_too_few_traces_are_refused_and_nothing_is_written(cli: Cli, tmp_path: Path, path: Path, pack: Path) -> None:
    result = cli("calibrate", path, "--pack", pack, "-o", tmp_path / "calibration.json")
    assert result.exit_code == 2
    assert "2 right and 3 wrong traces of 5 questions" in result.stderr
    assert not (tmp_path / "calibration.json").exists()


# ---- the setting -----------------------------------------------------------------------------------------------------


def test_a_calibration_that_cannot_be_read_is_told_before_a_model_is_loaded(cli: Cli, tmp_path: Path) -> None:
    cases = tmp_path / "cases.jsonl"
    cases.write_text('{"id": "1", "question": "q", "trace": "t"}\n')
    result = cli("verify", cases, "--set", f"judge.calibration={tmp_path / 'absent.json'}")
    assert result.exit_code == 2
    assert "absent.json: cannot be read" in result.stderr
