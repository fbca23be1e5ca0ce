"""Which examples of a pool are in an evaluation pack too, so that none of them is trained on.

Questions are compared by `verifier.overlap`, and two more things than a likeness count:

- A pair leaks if the right answers have the same text, or if one of them is not known. But where five questions of one source or
  pack have the same wording ("Is the following statement right?"), the wording says nothing of what is asked, and without an
  answer such a pair is no leak.
- A trace that is in the pack with the same question is one, whatever its question is.

A source that holds half of a pack is that pack, or was made of it: it is refused, not filtered.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from curriculum.pool.errors import PoolError
from curriculum.pool.example import Example, question_text, text_key
from verifier.overlap import OverlapError, Pair, find_overlap
from verifier.packs import PackError, QuestionRow, pack_file, read_pack, read_questions

_HELD = 0.5  # share of a pack from which on a source is taken for it
_MOULD = 5  # questions of one source with one wording from which on the wording is a mould


class TrainsOnPackError(PoolError):
    """A source is an evaluation pack."""


@dataclass(frozen=True, slots=True)
class PackOverlap:
    """What the pool and one evaluation pack have in common."""

    pack: str
    questions: int  # in the pack
    exact: int  # of these, in the pool word for word
    near: int  # of these, in the pool nearly and not word for word
    leaked: int  # of these exact and near ones, with the same right answer, or one that is not known
    traces: int  # examples whose question and trace are in the pack
    removed: int  # examples that are taken out of the pool for this pack
    pairs: Sequence[Pair]  # leaks first, then by similarity; `pooled` is the id of one of the question's examples


@dataclass(frozen=True, slots=True)
class Overlap:
    """A pool without what is in the packs, and the report on each pack."""

    kept: Sequence[Example]
    removed: Counter[str]  # by source
    packs: Sequence[PackOverlap]


@dataclass(frozen=True, slots=True)
class _Pack:
    name: str
    rows: Sequence[QuestionRow]
    questions: frozenset[tuple[str, str]]  # id and text
    traces: frozenset[str]  # `text_key` of each

    @classmethod
    def read(cls, prefix: Path) -> "_Pack":
        rows = read_questions(prefix)
        traces = read_pack(prefix) if pack_file(prefix, "traces") else []
        return cls(
            str(prefix),
            rows,
            frozenset((row.id, question_text(row.asked())) for row in rows),
            frozenset(text_key(one.case) for one in traces),
        )

    def compared(self) -> Iterator[QuestionRow]:
        """Each question as it stands, and with what it is about before it: a pool may have it either way."""
        for row in self.rows:
            yield row
            if (asked := row.asked()).text != row.question:
                yield QuestionRow(id=row.id, question=asked.text, options=row.options, answer=row.answer)


def check_overlap(examples: Iterable[Example], packs: Sequence[Path], threshold: float = 0.8) -> Overlap:
    """Take out of the pool what is in the packs.

    Args:
        examples: the pool.
        packs: PREFIX of each evaluation pack; of one without traces, its questions are compared.
        threshold: similarity from which on two questions are near each other, .5 to 1.

    Raises:
        TrainsOnPackError: a source is one of the packs.
        PoolError: a pack cannot be read, or the comparison cannot be made.
    """
    if not packs:
        return Overlap(list(examples), Counter(), [])
    pool = _Compared(examples)
    try:
        read = [_Pack.read(prefix) for prefix in packs]
        for pack in read:
            _refuse(pool, pack)
        # Once for all packs: most of the work is with the pool.
        rows = [
            row.model_copy(update={"id": f"{n} {row.id}"}) for n, pack in enumerate(read) for row in pack.compared()
        ]
        pairs = find_overlap(rows, pool.rows, threshold)
    except (PackError, OverlapError) as error:
        raise PoolError(str(error)) from error
    of_pack: list[list[Pair]] = [[] for _ in read]
    for pair in pairs:
        number, _, question = pair.question.partition(" ")
        of_pack[int(number)].append(replace(pair, question=question))
    found = [_report(pool, pack, own) for pack, own in zip(read, of_pack, strict=True)]
    gone = frozenset[int]().union(*(places for _, places in found))
    return Overlap(
        kept=[example for place, example in enumerate(pool.examples) if place not in gone],
        removed=Counter(pool.examples[place].source for place in gone),
        packs=[report for report, _ in found],
    )


class _Compared:
    """A pool as it is compared: its questions by wording and right answer, each once, and its traces by their text."""

    def __init__(self, examples: Iterable[Example]) -> None:
        self.examples = list(examples)
        self.places: dict[tuple[str, str], list[int]] = {}  # of the examples with this wording and right answer
        self.by_key: dict[str, list[int]] = {}
        self.questions: dict[tuple[str, str], str] = {}  # source and id to text
        asked_by: dict[tuple[str, str], set[str]] = {}  # source and wording to question ids
        for place, example in enumerate(self.examples):
            text = example.case.question.text
            self.places.setdefault((text, _right_answer(example)), []).append(place)
            self.by_key.setdefault(text_key(example.case), []).append(place)
            asked_by.setdefault((example.source, text), set()).add(example.question_id)
            if example.question not in self.questions:
                self.questions[example.question] = question_text(example.case.question)
        self.moulds = {text for (_, text), ids in asked_by.items() if len(ids) >= _MOULD}
        self.wordings = list(self.places)
        self.rows = [
            QuestionRow(id=str(number), question=text, answer=answer)
            for number, (text, answer) in enumerate(self.wordings)
        ]


def _refuse(pool: _Compared, pack: _Pack) -> None:
    questions = Counter(source for (source, own), text in pool.questions.items() if (own, text) in pack.questions)
    traces = Counter(
        source for key in pack.traces for source in {pool.examples[place].source for place in pool.by_key.get(key, ())}
    )
    for what, held, whole in (("questions", questions, pack.questions), ("traces", traces, pack.traces)):
        for source, number in held.items():
            if number >= _HELD * len(whole):
                raise TrainsOnPackError(
                    f"source {source!r} has {number:,} of the {len(whole):,} {what} of the evaluation pack {pack.name!r}: a "
                    "judge that was trained on them cannot be measured on them. Take the source out; or take the pack out of "
                    "overlap.packs and never report a figure on it"
                )


def _report(pool: _Compared, pack: _Pack, pairs: Iterable[Pair]) -> tuple[PackOverlap, frozenset[int]]:
    """What the pack has in common with the pool, and the places of the examples that must go."""
    moulds = {text for text, number in Counter(row.question for row in pack.rows).items() if number >= _MOULD}
    rows = {row.id: row for row in pack.rows}
    gone, leaks, others = set[int](), dict[tuple[str, str], Pair](), dict[tuple[str, str], Pair]()
    for pair in sorted(pairs, key=lambda pair: (-pair.similarity, pair.question, int(pair.pooled))):
        text, answer = pool.wordings[int(pair.pooled)]
        row = rows[pair.question]
        unknown = not (answer and row.answer)
        if unknown and (text in pool.moulds or row.question in moulds):
            continue
        places = pool.places[text, answer]
        told = replace(pair, pooled=pool.examples[places[0]].case.id)
        # A question with its context and without makes two pairs; the nearer one is told.
        (leaks if pair.same_answer or unknown else others).setdefault((told.question, told.pooled), told)
        if pair.same_answer or unknown:
            gone.update(places)
    traces = [place for key in pack.traces for place in pool.by_key.get(key, ())]
    told_pairs = [*leaks.values(), *others.values()]
    exact = {pair.question for pair in told_pairs if pair.kind == "exact"}
    report = PackOverlap(
        pack=pack.name,
        questions=len(pack.rows),
        exact=len(exact),
        near=len({pair.question for pair in told_pairs} - exact),
        leaked=len({pair.question for pair in leaks.values()}),
        traces=len(traces),
        removed=len(gone.union(traces)),
        pairs=told_pairs,
    )
    return report, frozenset(gone.union(traces))


def _right_answer(example: Example) -> str:
    """The text of the right answer; empty if it is not known."""
    return (example.case.question.options or {}).get(example.answer or "", example.answer or "")
