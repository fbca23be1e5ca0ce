from pathlib import Path

import pytest

from eval.report.schema import JudgeFacts
from eval.runfolder import Evidence, PackRun, Run, RunError, RunFolder, ScorerRun, Timing, settings_of

RUN = Run(
    medverify="1.0",
    packs=[PackRun(name="pack", prefix="/data/pack")],
    traces=2,
    questions=None,
    sample_seed=0,
    scorers=[ScorerRun(scorer="judge", suffix="", judge_id="j", seed=0)],
    judge=JudgeFacts(model="m", mode="free", judge_id="j", index="starter", seeds=[0]),
    settings=settings_of({"cache": Path("/cache"), "seed": 0}),
)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "run")
    folder.create()
    return folder


def test_what_ran_is_read_as_it_was_written(folder: RunFolder) -> None:
    folder.write_run(RUN)
    assert folder.read_run() == RUN
    assert RUN.settings == {"cache": "/cache", "seed": 0}
    folder.create()  # again, over what is there
    assert folder.read_run() == RUN


def test_evidence_is_read_as_it_was_written(folder: RunFolder) -> None:
    assert folder.read_evidence() is None
    evidence = Evidence(index="d" * 64, unresolved=[("corpus", "id")])
    folder.write_evidence(evidence)
    assert folder.read_evidence() == evidence


def test_a_folder_of_something_else_is_named(folder: RunFolder) -> None:
    with pytest.raises(RunError, match=r"run\.json: No such file.* is .*run the folder of an evaluation\?"):
        folder.read_run()
    (folder.path / "run.json").write_text('{"format": 2}')
    with pytest.raises(RunError, match=r"run\.json: not what `medverify eval` writes"):
        folder.read_run()


def test_judgments_that_are_not_there_yet_are_none(folder: RunFolder) -> None:
    assert folder.journal("pack", ".seed1").name == "pack.seed1.jsonl"
    assert folder.judgments("pack", "") == []
    folder.journal("pack", "").write_text("junk\n")
    with pytest.raises(ValueError, match="line 1: not a judgment"):
        folder.judgments("pack", "")


def test_seconds_are_those_of_the_waves_that_stand(folder: RunFolder) -> None:
    journal = folder.journal("pack", "")
    assert folder.seconds_per_trace(journal, 6) is None
    for start, count, seconds in ((0, 3, 30.0), (3, 1, 99.0), (3, 3, 6.0), (6, 3, 50.0)):
        folder.add_timing(Timing(file=journal.name, start=start, count=count, seconds=seconds))
    folder.add_timing(Timing(file="other.jsonl", start=0, count=1, seconds=99.0))
    with (folder.path / "timings.jsonl").open("a") as file:
        file.write('{"file": "pack.jsonl", "sta')  # a kill
    assert folder.seconds_per_trace(journal, 6) == 36.0 / 6
    assert folder.seconds_per_trace(journal, 9) == 86.0 / 9


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scorers": [RUN.scorers[0].model_copy(update={"judge_id": "k"})]}, "another judge"),
        ({"scorers": [RUN.scorers[0].model_copy(update={"seed": 4})]}, r"begun with judge\.sampling\.seed = 0, not 4"),
        ({"traces": 3}, "begun with traces = 2, not 3"),
        ({"questions": 5}, "begun with questions = None, not 5"),
        ({"sample_seed": 1}, "begun with sample_seed = 0, not 1"),
    ],
)
def test_a_folder_holds_one_run(folder: RunFolder, change: dict[str, object], message: str) -> None:
    folder.write_run(RUN)
    with pytest.raises(RunError, match=message):
        folder.write_run(RUN.model_copy(update=change))
    assert folder.read_run() == RUN


def test_what_a_later_command_brings_joins_what_ran(folder: RunFolder) -> None:
    folder.write_run(RUN)
    second = ScorerRun(scorer="judge, seed 1", suffix=".seed1", judge_id="j", seed=1)
    more = RUN.model_copy(
        update={"packs": [PackRun(name="more", prefix="/data/more")], "scorers": [*RUN.scorers, second]}
    )
    both = folder.write_run(more)
    assert folder.read_run() == both
    assert [(pack.name, pack.scorers) for pack in both.packs] == [("pack", [""]), ("more", ["", ".seed1"])]
    assert both.scorers == more.scorers
    moved = RUN.model_copy(update={"packs": [PackRun(name="pack", prefix="/elsewhere/pack")]})
    again = folder.write_run(moved)  # of fewer packs and judges: nothing is lost
    assert [pack.prefix for pack in again.packs] == ["/elsewhere/pack", "/data/more"]
    assert again.scorers == more.scorers


def test_one_command_at_a_time_has_the_folder(folder: RunFolder) -> None:
    with folder.held(), pytest.raises(RunError, match="another command is writing into this folder"), folder.held():
        pass
    with folder.held():  # free again
        pass
