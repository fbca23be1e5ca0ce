"""What `medverify eval` keeps of a run: judged by a script in place of a model."""

import json
from pathlib import Path

import pytest

from configs.settings import JudgeSettings, RetrievalSettings, Settings
from eval.rescore import cases_of, rescore
from eval.runfolder import RunError, RunFolder
from medverify.cli.evaluate_judging import Wanted, judge_packs
from retrieval.passage import Hit, Passage, UnavailableError
from retrieval.textstore import TextStoreWriter
from verifier.engines.scripted import ScriptedEngine
from verifier.judge import Judge
from verifier.packs import LabelledCase
from verifier.prompt import load_prompt

BOOK = Passage(id="b1", title="Book", text="A is right.", corpus="books")
FORGED = Passage(id="b2", title="Forged", text="B is right.", corpus="books")


class TwoBooks:
    """Finds the book that the index holds and one that it does not; may be out of reach."""

    digest = "1" * 64

    def __init__(self, broken: bool = False) -> None:
        self.broken = broken

    async def search(self, query: str, k: int) -> list[Hit]:
        if self.broken:
            raise UnavailableError("nobody is there")
        return [Hit(passage=passage, score=0.5, rank=rank) for rank, passage in enumerate((BOOK, FORGED), start=1)]

    async def aclose(self) -> None:
        """Nothing to close."""


def writes(text: str) -> str:
    return "<think>so</think><answer>1</answer>" if "[1] Book" in text else "<think>hm</think><search>letters</search>"


def judge_of(settings: JudgeSettings, broken: bool = False) -> Judge:
    engine = ScriptedEngine(writes, lambda text: {"1": 0.6, "0": 0.2}, max_sequences=2)
    return Judge(engine, TwoBooks(broken), load_prompt("judge"), "free", settings)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    index = tmp_path / "index"
    index.mkdir()
    with TextStoreWriter(index) as store:
        store.append(BOOK)
    return Settings(retrieval=RetrievalSettings(index=str(index)))


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    rows = [
        {"qid": f"q{i // 3}", "trace_id": f"t{i}", "reasoning": f"r{i}", "trace_label": i % 2, "pred": "AB"[i % 2]}
        for i in range(6)
    ]
    questions = [{"id": f"q{i}", "question": "Q?", "options": {"A": "a", "B": "b"}, "answer": "B"} for i in range(2)]
    for part, lines in (("questions", questions), ("traces", rows)):
        (tmp_path / f"mine.{part}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return tmp_path / "mine"


def wanted(pack: Path, **how: object) -> Wanted:
    from verifier.packs import read_pack

    cases: list[LabelledCase] = read_pack(pack)
    return Wanted({"mine": pack}, {"mine": cases}, traces=None, questions=None, sample_seed=0, **how)  # type: ignore[arg-type]


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
    assert (searching.searches_per_trace, silent.searches_per_trace) == (1.0, 0.0)
    assert searching.resolved == 0.5  # the forged book is not in the index
    assert second.scorer == "judge, seed 1"
    assert [of.seconds is not None for of in found.cost] == [True] * 3
    assert found.agreement is not None
    assert found.agreement.verdicts == 1.0


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
