import json
from pathlib import Path
from typing import Any

import pytest
from pool_fakes import example

from curriculum.pool.errors import PoolError
from curriculum.pool.example import Example
from curriculum.pool.overlap import TrainsOnPackError, check_overlap

LONG = "A {} man has had a dry cough and a fever of 39 degrees for three days; which test comes first?"
OPTIONS = {"A": "Sputum culture", "B": "Chest radiograph"}


def pack(folder: Path, name: str, questions: list[dict[str, Any]], traces: list[dict[str, Any]] | None = None) -> Path:
    for part, rows in (("questions", questions), ("traces", traces)):
        if rows is not None:
            (folder / f"{name}.{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / name


def asked(id: str, question: str, answer: str | None = "B", **more: Any) -> dict[str, Any]:
    return {"id": id, "question": question, "options": OPTIONS, "answer": answer, **more}


def in_pool(id: str, question: str, answer: str | None = "B", **more: Any) -> Example:
    return example(id, 1, id, asked=question, options=more.pop("options", OPTIONS), answer=answer, **more)


#: Questions that keep a pack from being half in the pool.
OTHERS = [
    asked(f"o{number}", f"Something quite different, number {number}: what is the spleen for?") for number in range(9)
]


def kept(examples: list[Example], *packs: Path) -> list[str]:
    return [one.question_id for one in check_overlap(examples, packs).kept]


def test_the_same_question_with_the_same_answer_goes_and_is_told(tmp_path: Path) -> None:
    prefix = pack(tmp_path, "exam", [asked("e1", LONG.format("young")), *OTHERS])
    swapped = {"A": "Chest radiograph", "B": "Sputum culture"}
    pool = [
        in_pool("same", LONG.format("young")),
        in_pool("again", LONG.format("young"), trace="Another trace of it."),
        in_pool("near", LONG.format("elderly")),
        in_pool("swapped", LONG.format("young").upper(), "A", options=swapped),
        in_pool("mould", LONG.format("young"), "A"),
        in_pool("far", "Which vitamin does the skin make?"),
    ]
    overlap = check_overlap(pool, [prefix], 0.8)
    assert [one.question_id for one in overlap.kept] == ["mould", "far"]
    assert overlap.removed == {"s": 4}
    (report,) = overlap.packs
    assert (report.pack, report.questions, report.exact, report.near, report.leaked) == (str(prefix), 10, 1, 0, 1)
    assert report.removed == 4
    assert [pair.same_answer for pair in report.pairs] == [True, True, True, False]
    assert report.pairs[0].similarity == 1
    assert {pair.pooled for pair in report.pairs} == {"s/same", "s/near", "s/swapped", "s/mould"}


def test_an_answer_that_is_not_known_is_taken_for_the_same(tmp_path: Path) -> None:
    prefix = pack(tmp_path, "exam", [asked("e1", LONG.format("young")), *OTHERS])
    assert kept([in_pool("same", LONG.format("young"), None), in_pool("far", "Which vitamin?", None)], prefix) == [
        "far"
    ]
    nameless = pack(tmp_path, "nameless", [asked("e1", LONG.format("young"), None), *OTHERS])
    assert kept([in_pool("same", LONG.format("young"))], nameless) == []


def test_a_wording_that_many_questions_share_says_nothing_without_an_answer(tmp_path: Path) -> None:
    wording = "Is the following statement from the medical literature right?"
    pool = [example(f"{n}", 1, f"{n}", asked=wording) for n in range(5)]
    one = pack(tmp_path, "one", [{"id": "e", "question": wording}, *OTHERS])
    many = pack(tmp_path, "many", [{"id": f"e{n}", "question": wording} for n in range(5)])
    assert kept(pool, one, many) == ["0", "1", "2", "3", "4"]
    assert kept(pool[:4], many) == ["0", "1", "2", "3"]
    assert [pack.pairs for pack in check_overlap(pool, [one, many]).packs] == [[], []]
    # Some copies of a question, in one source or in several, are no mould.
    assert kept([*pool[:4], *(example(f"{n}", 1, f"{n}", "other", asked=wording) for n in range(4))], one) == []


def test_a_trace_that_is_in_a_pack_goes_whatever_its_question_is_like(tmp_path: Path) -> None:
    wording = "Is the following statement right?"
    questions = [{"id": f"e{n}", "question": wording} for n in range(5)]
    traces = [
        {"qid": f"e{n}", "trace_id": f"t{n}", "reasoning": f"Statement {n}.", "trace_label": None} for n in range(5)
    ]
    prefix = pack(tmp_path, "claims", questions, traces)
    pool = [example(f"{n}", 1, f"{n}", asked=wording, trace=f"Statement  {n}.") for n in (4, 5, 6)]
    overlap = check_overlap(pool, [prefix])
    assert [one.question_id for one in overlap.kept] == ["5", "6"]
    assert overlap.packs[0].traces == 1


def test_a_question_is_found_with_what_it_is_about_and_without(tmp_path: Path) -> None:
    question, context = LONG.format("young"), "An abstract on pneumonia. " * 20
    prefix = pack(tmp_path, "exam", [asked("e1", question, context=context), *OTHERS])
    assert kept([in_pool("bare", question), in_pool("whole", f"{context.strip()}\n\n{question}")], prefix) == []


@pytest.mark.parametrize("part", ["questions", "traces"])
def test_a_source_that_is_a_pack_is_refused(tmp_path: Path, part: str) -> None:
    questions = [asked(f"e{n}", f"{LONG.format(n)}") for n in range(4)]
    traces = [{"qid": f"e{n}", "trace_id": f"{n}", "reasoning": f"Trace {n}.", "trace_label": 1} for n in range(4)]
    prefix = pack(tmp_path, "exam", questions, traces)
    by_question = [example(f"{n}", 1, f"e{n}", asked=LONG.format(n), options=OPTIONS) for n in range(4)]
    by_trace = [
        example(f"{n}", 1, f"renamed{n}", asked=LONG.format(n), options=OPTIONS, trace=f"Trace {n}.") for n in range(4)
    ]
    pool = by_question if part == "questions" else by_trace
    with pytest.raises(TrainsOnPackError, match=rf"source 's' has 2 of the 4 {part} of the evaluation pack '.*exam'"):
        check_overlap(pool[:2], [prefix])
    assert check_overlap(pool[:1], [prefix]).kept in ([], pool[:1])  # a quarter is filtered, not refused


def test_equal_ids_alone_are_no_sameness(tmp_path: Path) -> None:
    prefix = pack(tmp_path, "exam", [asked(f"{n}", LONG.format(n)) for n in range(4)])
    pool = [example(f"{n}", 1, f"{n}", asked=f"What is organ {n} for, and where does it lie?") for n in range(4)]
    assert len(check_overlap(pool, [prefix]).kept) == 4


def test_without_packs_nothing_is_compared() -> None:
    pool = [example("1", 1)]
    assert check_overlap(pool, []).kept == pool


def test_a_pack_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(PoolError, match="no such file"):
        check_overlap([example("1", 1)], [tmp_path / "none"])
