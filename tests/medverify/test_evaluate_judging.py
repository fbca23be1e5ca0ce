"""What `medverify eval` keeps of a run: judged by a script in place of a model."""

import subprocess
import sys
from pathlib import Path

import pytest
from calibration_fakes import calibration
from evaluate_fakes import judge_of, settings_in, wanted, write_pack

from configs.appended import ResumeError
from configs.settings import RetrievalSettings, Settings
from eval.rescore import cases_of, rescore
from eval.runfolder import RunError, RunFolder
from medverify.cli.evaluate_judging import judge_packs


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_in(tmp_path)


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    return write_pack(tmp_path / "mine")


def test_all_that_a_report_needs_is_kept(settings: Settings, pack: Path, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    judge_packs(judge_of(settings.judge), settings, wanted(pack, seeds=2, without_search=True), folder)
    names = {file.name for file in (tmp_path / "run" / "judgments").iterdir()}
    assert names == {"mine.jsonl", "mine.seed1.jsonl", "mine.without-search.jsonl"}
    run = folder.read_run()
    assert [scorer.scorer for scorer in run.scorers] == ["judge", "judge, seed 1", "judge without search"]
    assert run.judge is not None
    assert run.judge.seeds == [0, 1]
    assert run.judge.index == "index"  # its name; where it lies is nobody's business
    (found,) = rescore(folder, run, cases_of(run)).packs
    searching, second, silent = found.conduct
    assert searching.statuses == {"scored": 6}
    assert (searching.searches_per_trace.value, silent.searches_per_trace.value) == (1.0, 0.0)
    assert searching.resolved is not None
    assert searching.resolved.value == 0.5  # the forged book is not in the index
    assert second.scorer == "judge, seed 1"
    assert [of.seconds is not None for of in found.cost] == [True] * 3
    assert found.agreement is not None
    assert found.agreement.verdicts.value == 1.0


def test_a_run_goes_on_and_keeps_its_bytes(settings: Settings, pack: Path, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    judge_packs(judge_of(settings.judge), settings, wanted(pack), folder)
    path = folder.journal("mine", "")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    judge = judge_of(settings.judge)
    judge_packs(judge, settings, wanted(pack), folder)
    assert path.read_bytes() == whole
    assert len(judge.engine.sequences) == 4  # type: ignore[attr-defined] - two waves of the three


def test_failures_are_judged_again_when_asked(settings: Settings, pack: Path, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    judge_packs(judge_of(settings.judge, broken=True), settings, wanted(pack), folder)
    run = folder.read_run()
    (found,) = rescore(folder, run, cases_of(run)).packs
    assert {failure.status for failure in found.failures} == {"retrieval_failed"}
    assert len(found.failures) == 6
    judge_packs(judge_of(settings.judge), settings, wanted(pack, retry_failed=True), folder)
    assert rescore(folder, run, cases_of(run)).packs[0].failures == []


def test_another_judge_does_not_write_into_the_folder(settings: Settings, pack: Path, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    judge_packs(judge_of(settings.judge), settings, wanted(pack), folder)
    other = settings.judge.model_copy(update={"top_k": 1})
    before = (tmp_path / "run" / "run.json").read_bytes()
    with pytest.raises(RunError, match="another judge"):
        judge_packs(judge_of(other), settings.model_copy(update={"judge": other}), wanted(pack), folder)
    assert (tmp_path / "run" / "run.json").read_bytes() == before


def test_what_a_server_holds_is_not_called_resolved(pack: Path, tmp_path: Path) -> None:
    far = Settings(retrieval=RetrievalSettings(index="http://127.0.0.1:9"))
    folder = RunFolder(tmp_path / "run")
    judge_packs(judge_of(far.judge), far, wanted(pack), folder)
    assert folder.read_evidence() is None
    run = folder.read_run()
    assert rescore(folder, run, cases_of(run)).packs[0].conduct[0].resolved is None


def test_a_pack_that_is_added_joins_those_that_were_judged(settings: Settings, pack: Path, tmp_path: Path) -> None:
    """Naming only the new one is enough, and each pack keeps the judges that it had."""
    folder, more = RunFolder(tmp_path / "run"), write_pack(tmp_path / "more")
    judge_packs(judge_of(settings.judge), settings, wanted(pack, seeds=2), folder)
    alone = rescore(folder, folder.read_run(), cases_of(folder.read_run())).packs
    judge_packs(judge_of(settings.judge), settings, wanted(more), folder)
    run = folder.read_run()
    first, second = rescore(folder, run, cases_of(run)).packs
    assert [first] == alone  # with both seeds, and the forged book still not in the index
    assert (second.name, [one.scorer for one in second.conduct]) == ("more", ["judge"])
    assert second.conduct[0].resolved is not None
    assert second.conduct[0].resolved.value == 0.5
    assert (second.agreement, second.failures) == (None, [])
    judge_packs(judge_of(settings.judge), settings, wanted(pack, more, without_search=True), folder)
    run = folder.read_run()
    assert [pack.name for pack in run.packs] == ["mine", "more"]
    assert [scorer.suffix for scorer in run.scorers_of("mine")] == ["", ".seed1", ".without-search"]
    assert [scorer.suffix for scorer in run.scorers_of("more")] == ["", ".without-search"]
    assert run.judge is not None
    assert run.judge.seeds == [0, 1]


@pytest.mark.parametrize("change", ["seed", "traces", "calibration", "pack"])
def test_what_does_not_belong_there_leaves_everything_as_it_was(
    settings: Settings, pack: Path, tmp_path: Path, change: str
) -> None:
    folder = RunFolder(tmp_path / "run")
    judge_packs(judge_of(settings.judge), settings, wanted(pack), folder)
    before = {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}
    how, judge, todo = settings, judge_of(settings.judge), wanted(pack)
    if change == "seed":
        sampling = settings.judge.sampling.model_copy(update={"seed": 7})
        how = settings.model_copy(update={"judge": settings.judge.model_copy(update={"sampling": sampling})})
        judge = judge_of(how.judge)
    elif change == "traces":
        todo = wanted(pack, traces=1)
    elif change == "calibration":
        judge.calibration = calibration(judge.judge_id)
    else:  # another of the same name
        (tmp_path / "other").mkdir()
        other = write_pack(tmp_path / "other" / "mine")
        questions = Path(f"{other}.questions.jsonl")
        questions.write_text(questions.read_text().replace("Q?", "Another?"))
        todo = wanted(other)
    with pytest.raises((RunError, ResumeError), match="-o"):
        judge_packs(judge, how, todo, folder)
    assert {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()} == before


def test_two_commands_at_once_do_not_write_into_one_folder(settings: Settings, pack: Path, tmp_path: Path) -> None:
    """They judge different packs, so that no file of judgments keeps them apart."""
    folder, more = tmp_path / "run", write_pack(tmp_path / "more")
    command = [
        sys.executable, str(Path(__file__).with_name("evaluate_slowly.py")), settings.retrieval.index, str(folder),
    ]  # fmt: skip
    with (
        subprocess.Popen([*command, str(pack)], stderr=subprocess.PIPE, text=True) as one,
        subprocess.Popen([*command, str(more)], stderr=subprocess.PIPE, text=True) as other,
    ):
        told = [process.communicate(timeout=60)[1] for process in (one, other)]
    assert sorted((one.returncode, other.returncode)) == [0, 1]
    refused = one.returncode == 1
    assert "another command is writing into this folder" in told[0 if refused else 1]
    assert [pack.name for pack in RunFolder(folder).read_run().packs] == ["more" if refused else "mine"]
    subprocess.run([*command, str(pack if refused else more)], check=True, timeout=60)
    assert {pack.name for pack in RunFolder(folder).read_run().packs} == {"mine", "more"}
