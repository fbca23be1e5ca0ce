"""A judge by a script, an index of one book, and packs to judge. Importable from a subprocess as well."""

import json
from pathlib import Path

from configs.settings import JudgeSettings, RetrievalSettings, Settings
from medverify.cli.evaluate_judging import Wanted
from retrieval.passage import Hit, Passage, UnavailableError
from retrieval.textstore import TextStoreWriter
from verifier.engines.scripted import ScriptedEngine
from verifier.judge import Judge
from verifier.packs import read_pack
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


def judge_of(settings: JudgeSettings, broken: bool = False, delay_s: float = 0.0) -> Judge:
    engine = ScriptedEngine(writes, lambda text: {"1": 0.6, "0": 0.2}, max_sequences=2, delay_s=delay_s)
    return Judge(engine, TwoBooks(broken), load_prompt("judge"), "free", settings)


def settings_in(folder: Path) -> Settings:
    """Settings whose index, made in this folder, holds one of the two books."""
    index = folder / "index"
    index.mkdir()
    with TextStoreWriter(index) as store:
        store.append(BOOK)
    return Settings(retrieval=RetrievalSettings(index=str(index)))


def write_pack(prefix: Path) -> Path:
    """Two questions of three traces."""
    rows = [
        {"qid": f"q{i // 3}", "trace_id": f"t{i}", "reasoning": f"r{i}", "trace_label": i % 2, "pred": "AB"[i % 2]}
        for i in range(6)
    ]
    questions = [{"id": f"q{i}", "question": "Q?", "options": {"A": "a", "B": "b"}, "answer": "B"} for i in range(2)]
    for part, lines in (("questions", questions), ("traces", rows)):
        Path(f"{prefix}.{part}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return prefix


def wanted(*packs: Path, traces: int | None = None, **how: object) -> Wanted:
    """All traces of the packs."""
    cases = {pack.name: read_pack(pack, traces) for pack in packs}
    named = {pack.name: pack for pack in packs}
    return Wanted(named, cases, traces=traces, questions=None, sample_seed=0, **how)  # type: ignore[arg-type]
