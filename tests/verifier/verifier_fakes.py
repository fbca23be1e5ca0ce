# ruff: noqa: RUF001 - characters that look like others are the subject here
"""A retriever, scripts and tokenizers that say what a test tells them to, and one-line ways to put a judge together."""

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from configs.settings import Guided, JudgeSettings, Limits, Sampling
from retrieval.passage import Hit, Passage, QueryError, Retriever
from verifier.confidence import label_tokens
from verifier.engines.base import Engine, EngineError
from verifier.engines.scripted import ByteTokenizer, Script, ScriptedEngine
from verifier.episode import Episode
from verifier.judge import Judge, Mode, Outcome
from verifier.parse import Tag
from verifier.prompt import Prompt, load_prompt
from verifier.transcript import Author
from verifier.types import Case

PASSAGES = (
    Passage(id="p1", title="Metformin", text="Metformin is first-line therapy of type 2 diabetes.", corpus="fake"),
    Passage(id="p2", title="Insulin", text="Insulin lowers potassium.", corpus="fake"),
    Passage(id="p3", title="Digoxin", text="Digoxin is toxic when potassium is low.", corpus="fake"),
)
CASE = Case(id="c1", question="Which drug is first-line in type 2 diabetes?", trace="Metformin is first-line.")


def hits(passages: Sequence[Passage]) -> list[Hit]:
    return [Hit(passage=passage, score=10.0 - rank, rank=rank) for rank, passage in enumerate(passages, start=1)]


@dataclass
class FakeRetriever:
    """Finds the same passages for every query, or fails in one way or another."""

    passages: Sequence[Passage] = PASSAGES
    error: Exception | None = None
    delay_s: float = 0.0
    digest: str = "1" * 64
    queries: list[str] = field(default_factory=list)

    async def search(self, query: str, k: int) -> list[Hit]:
        self.queries.append(query)
        await asyncio.sleep(self.delay_s)
        if self.error is not None:
            raise self.error
        if not query:
            raise QueryError("the query is empty")
        return hits(self.passages)[:k]

    async def aclose(self) -> None:
        """Nothing to close."""


class Turns:
    """A script: one text for each turn of the policy, then silence. A forced verdict position is not a turn."""

    def __init__(self, *texts: str | EngineError) -> None:
        self._texts: Iterator[str | EngineError] = iter(texts)

    def __call__(self, text: str) -> str | EngineError:
        return "1" if text.endswith("<answer>") else next(self._texts, "")


def believe(one: float, zero: float) -> Callable[[str], dict[str, float]]:
    """The same probabilities of the two labels wherever an answer begins."""

    def beliefs(text: str) -> dict[str, float]:
        return {"1": one, "0": zero} if re.search(r"<answer>\s*$", text) else {}

    return beliefs


SURE = believe(0.72, 0.08)  # p_correct 0.9, mass 0.8


def engine(script: Script, **fields: Any) -> ScriptedEngine:
    return ScriptedEngine(script, **{"beliefs": SURE, **fields})


def judge(
    engine: Engine,
    retriever: Retriever | None = None,
    mode: Mode = "free",
    prompt: Prompt | None = None,
    **settings: Any,
) -> Judge:
    """A judge with the shipped prompt of its mode. Settings are those of `JudgeSettings`; its sections may be dicts."""
    prompt = prompt or load_prompt("judge" if mode == "free" else "guided")
    return Judge(engine, retriever or FakeRetriever(), prompt, mode, settings_of(**settings))


def settings_of(**fields: Any) -> JudgeSettings:
    sections = {"limits": Limits, "guided": Guided, "sampling": Sampling}
    return JudgeSettings(**{
        name: sections[name](**value) if isinstance(value, dict) else value for name, value in fields.items()
    })  # fmt: skip


async def run(judge: Judge, case: Case = CASE, seed: int | None = None) -> Outcome:
    """One episode with its transcript."""
    async with judge.engine.open() as (sequence,):
        return await judge.run(case, sequence, seed)


async def open_episode(engine: ScriptedEngine, retriever: Retriever | None = None, **settings: Any) -> Episode:
    """An episode that has not begun. Scripted places need no closing."""
    async with engine.open() as (sequence,):
        pass
    sequence = type(sequence)(engine)
    labels = label_tokens(engine.tokenizer)
    return Episode(engine, sequence, retriever or FakeRetriever(), settings_of(**settings), labels, seed=0)


def written_by(outcome: Outcome, author: Author, engine: ScriptedEngine) -> list[str]:
    """The texts of one author's segments."""
    segments = outcome.transcript.segments
    return [engine.tokenizer.decode(segment.ids) for segment in segments if segment.author is author]


def whole_text(outcome: Outcome, engine: ScriptedEngine) -> str:
    return engine.tokenizer.decode(outcome.transcript.ids)


class MergingTokenizer(ByteTokenizer):
    """Some pairs of characters are one token, as in a real vocabulary."""

    def __init__(self, *merges: str) -> None:
        self._merges = {300 + number: merge.encode() for number, merge in enumerate(merges)}

    def encode(self, text: str) -> list[int]:
        data, ids = text.encode(), list[int]()
        while data:
            token, merge = next(
                ((token, merge) for token, merge in self._merges.items() if data.startswith(merge)), (data[0], data[:1])
            )
            ids.append(token)
            data = data[len(merge) :]
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        plain = [byte for token in ids if token != 256 for byte in self._merges.get(token, bytes([token % 256]))]
        return bytes(plain).decode(errors="replace")


# ---- texts to try parsers with ---------------------------------------------------------------------------------------

REAL_TAGS = tuple(text for tag in Tag for text in (tag.opening, tag.closing))
_FRAGMENTS = (
    *REAL_TAGS,
    *(
        "<",
        ">",
        "</",
        "/",
        "<a",
        "<thi",
        "nk>",
        "<ans",
        "wer>",
        "</think",
        "<THINK>",
        "< answer>",
        "<answer >",
        "＜answer＞",
    ),
    *("&lt;", "&gt;", "«", "»", "<|", "|>", "[", "]", "INST", "<s>", "|", "(", ")", "im_end"),
    *("think", "search", "information", "answer", "th", "ink", "ans"),
    *(
        "0",
        "1",
        "7",
        "-1",
        "one",
        "１",
        " ",
        "\n",
        "\t",
        "\u200b",
        "\u00ad",
        "\u0301",
        "\x00",
        "é",
        "\ud800",
        "K+ <3.5",
    ),
)

#: Pieces of tags, whole tags, labels and white space, thrown together.
tag_soup = st.lists(st.sampled_from(_FRAGMENTS), max_size=25).map("".join)
#: Well-behaved blocks more often than not, so that verdicts do come up.
blocks = st.lists(
    st.tuples(st.sampled_from(list(Tag)), st.one_of(st.sampled_from(["0", "1", " 1 ", "7", ""]), tag_soup)).map(
        lambda pair: f"{pair[0].opening}{pair[1]}{pair[0].closing}"
    ),
    max_size=8,
).map("".join)
#: Anything, lone surrogates and undecodable bytes included.
any_text = st.one_of(
    st.text(st.characters(exclude_categories=())), st.binary().map(lambda data: data.decode(errors="replace")), tag_soup,
    blocks, st.tuples(blocks, tag_soup, blocks).map("".join),
)  # fmt: skip
