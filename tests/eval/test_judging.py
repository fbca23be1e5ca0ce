import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from calibration_fakes import calibration
from eval_fakes import ThreeBooks, cases, scripted_judge

from configs.appended import ResumeError
from configs.settings import JudgeSettings, Sampling
from eval.judging import WITHOUT_SEARCH, Pass, Variant, variants
from eval.run import Journal
from eval.runfolder import Timing
from verifier.engines.scripted import ScriptedEngine
from verifier.judge import Judge
from verifier.prompt import load_prompt
from verifier.types import Case, Judgment, Status

CASES = cases(8)  # waves of three, three and two


def judge_into(
    path: Path, judge: Judge, cases: Sequence[Case] = CASES, timings: list[Timing] | None = None
) -> tuple[int, list[Judgment]]:
    """How much had been judged before, and all judgments."""
    with Journal(path) as journal:
        way = Pass(journal, judge, cases)
        before = len(way.judgments)
        asyncio.run(way.finish([].append if timings is None else timings.append))
    return before, way.judgments


def into(path: Path, variant: Variant | None = None, timings: list[Timing] | None = None) -> list[Judgment]:
    judge = scripted_judge()
    return judge_into(path, variant.of(judge) if variant else judge, timings=timings)[1]


def test_the_variants_of_a_judge() -> None:
    settings = JudgeSettings(sampling=Sampling(seed=3))
    found = variants(settings, 3, without_search=True)
    assert [one.scorer for one in found] == ["judge", "judge, seed 4", "judge, seed 5", WITHOUT_SEARCH]
    assert [one.suffix for one in found] == ["", ".seed4", ".seed5", ".without-search"]
    assert [one.settings.sampling.seed for one in found] == [3, 4, 5, 3]
    assert found[0].settings == settings
    assert [one.scorer for one in variants(settings)] == ["judge"]


def test_seeds_share_a_judge_id_and_the_one_without_search_has_its_own() -> None:
    judge = scripted_judge()
    plain, seed, silent = (one.of(judge) for one in variants(judge.settings, 2, without_search=True))
    assert plain.judge_id == seed.judge_id == judge.judge_id != silent.judge_id


def test_a_calibration_goes_with_its_judge_and_with_no_other() -> None:
    judge = scripted_judge()
    judge.calibration = calibration(judge.judge_id)
    plain, seed, silent = (one.of(judge) for one in variants(judge.settings, 2, without_search=True))
    assert plain.calibrated(0.9) == seed.calibrated(0.9) == judge.calibrated(0.9) == pytest.approx(0.75)
    assert silent.calibrated(0.9) is None


@pytest.mark.parametrize("mode", ["free", "guided"])
def test_without_search_nothing_is_searched_and_a_verdict_given(mode: str, tmp_path: Path) -> None:
    """Also where the policy asks for a search: the tool is off."""
    asks = "<think>hm</think><search>x</search>"
    engine = ScriptedEngine(lambda text: "1" if text.endswith("<answer>") else asks, lambda _: {"1": 0.6, "0": 0.2})
    prompt = load_prompt("judge" if mode == "free" else "guided")
    judge = Judge(engine, ThreeBooks(), prompt, mode, JudgeSettings())  # type: ignore[arg-type]
    silent = variants(judge.settings, without_search=True)[-1].of(judge)
    _, judgments = judge_into(tmp_path / "j.jsonl", silent, CASES[:2])
    assert [one.status for one in judgments] == [Status.SCORED] * 2
    assert not any(one.searches for one in judgments)
    _, searching = judge_into(tmp_path / "s.jsonl", judge, CASES[:2])
    assert all(one.searches for one in searching)


def test_judging_goes_on_where_it_stopped_and_times_what_it_does(tmp_path: Path) -> None:
    path, timings = tmp_path / "j.jsonl", list[Timing]()
    whole = into(path, timings=timings)
    assert [(one.file, one.start, one.count) for one in timings] == [
        ("j.jsonl", 0, 3),
        ("j.jsonl", 3, 3),
        ("j.jsonl", 6, 2),
    ]
    assert all(one.seconds > 0 for one in timings)
    content = path.read_bytes()
    path.write_bytes(b"".join(content.splitlines(keepends=True)[:4]))
    again = list[Timing]()
    assert judge_into(path, scripted_judge(), timings=again) == (3, whole)
    assert path.read_bytes() == content
    assert [one.start for one in again] == [3, 6]


def test_a_file_of_another_seed_is_not_continued(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    into(path)
    with pytest.raises(ResumeError, match="seed"):
        into(path, variants(scripted_judge().settings, 2)[1])
