"""What is written of a ranking: the rows of the input with their judgments, the best of them, or pairs to learn preferences from."""

import json
from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import combinations
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from eval.rerank.columns import Columns, cases_of, parse
from eval.rerank.ranking import Ranking, Sample
from eval.rerank.sources import Source, to_json
from verifier.types import Case

_CRITIQUE = ("reasoning", "stop_reason", "detail")
_NAMED_OTHERWISE = ("id", "p_correct", "verdict", "status", "judge_id")


class Detail(StrEnum):
    """How much of a judgment is written beside a row."""

    SCORES = "scores"  # probability, verdict, status, rank, judge
    CRITIQUE = "critique"  # and what the judge thought, and why it stopped
    FULL = "full"  # and searches with their passages, tokens, all there is


class Pairing(StrEnum):
    """Which samples of a question become a preference pair."""

    BEST_WORST = "best-worst"
    ALL = "all"


class OutputOptions(BaseModel):
    """What is written, and how. Changing it never asks for new judgments."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    detail: Detail = Detail.SCORES
    into: Annotated[str, Field(description="Column that the judgment is written to.")] = "medverify"
    group: Annotated[str | None, Field(description="Column that tells questions apart.")] = None
    id: Annotated[str | None, Field(description="Column that names a row in a pair.")] = None
    keep_best: int | None = None
    min_p: float | None = None
    pairs: Pairing | None = None
    min_margin: float = 0.0


def lines(
    ranking: Ranking, source: Source, columns: Columns, options: OutputOptions, judge_id: str
) -> Iterator[bytes]:
    """The lines of the output, as JSON without their ends, question by question."""
    for group in ranking.questions():
        if options.pairs is not None:
            yield from _pairs(ranking, source, columns, options, judge_id, group)
        elif kept := _kept(options, group):
            yield from _rows(ranking, columns, options, judge_id, kept)


def _kept(options: OutputOptions, group: Sequence[Sample]) -> Sequence[Sample]:
    """All of them, unless only the best are wanted: then what was not judged is not among them."""
    if options.keep_best is None and options.min_p is None:
        return group
    return [sample for sample in group if sample.p is not None and sample.p >= (options.min_p or 0)][: options.keep_best]


def _rows(
    ranking: Ranking, columns: Columns, options: OutputOptions, judge_id: str, kept: Sequence[Sample]
) -> Iterator[bytes]:
    if columns.samples is None:
        into = json.dumps(options.into).encode()
        for sample in kept:
            # The row's own text is not written anew: numbers keep their spelling, keys their order.
            row = ranking.row(sample).text.strip().removesuffix(b"}").rstrip()
            yield b"%s, %s: %s}" % (row, into, to_json(_result(ranking, options, judge_id, sample)))
        return
    record = json.loads(ranking.row(kept[0]).text)
    record[columns.samples] = [record[columns.samples][sample.sample] for sample in kept]
    record[options.into] = [
        {"sample": sample.sample, **_result(ranking, options, judge_id, sample)} for sample in kept
    ]
    yield to_json(record)


def _result(ranking: Ranking, options: OutputOptions, judge_id: str, sample: Sample) -> dict[str, Any]:
    result = {
        "p_correct": sample.p,
        "verdict": sample.verdict,
        "status": sample.status.value,
        "rank": sample.rank,
        "judge_id": judge_id,
    }
    if options.detail is Detail.SCORES:
        return result
    judgment = ranking.judgment(sample)
    names = _CRITIQUE if options.detail is Detail.CRITIQUE else [n for n in judgment if n not in _NAMED_OTHERWISE]
    return result | {name: judgment[name] for name in names}


def _pairs(
    ranking: Ranking,
    source: Source,
    columns: Columns,
    options: OutputOptions,
    judge_id: str,
    group: Sequence[Sample],
) -> Iterator[bytes]:
    judged = [sample for sample in group if sample.p is not None]
    ends = (judged[0], judged[-1]) if len(judged) > 1 else ()
    chosen_from = combinations(judged if options.pairs is Pairing.ALL else ends, 2)
    known = dict[int, tuple[dict[str, Any], dict[int, Case]]]()
    for chosen, rejected in chosen_from:
        margin = (chosen.p or 0.0) - (rejected.p or 0.0)
        if margin <= 0 or margin < options.min_margin or (chosen.p or 0.0) < (options.min_p or 0):
            continue
        names, cases = list[Any](), list[Case]()
        for sample in (chosen, rejected):
            record, samples = known.get(sample.row) or known.setdefault(
                sample.row, _read(ranking, source, columns, sample)
            )
            cases.append(samples[sample.sample])
            names.append(_name(columns, options, record, sample))
        texts = [case.trace.text or "\n".join(case.trace.steps or ()) for case in cases]
        if texts[0] == texts[1]:
            continue
        yield to_json({
            "prompt": _prompt(cases[0]),
            "chosen": texts[0],
            "rejected": texts[1],
            "margin": margin,
            "p_chosen": chosen.p,
            "p_rejected": rejected.p,
            "chosen_id": names[0],
            "rejected_id": names[1],
            "judge_id": judge_id,
        })  # fmt: skip


def _read(
    ranking: Ranking, source: Source, columns: Columns, sample: Sample
) -> tuple[dict[str, Any], dict[int, Case]]:
    row = ranking.row(sample)
    record = parse(source, row)
    assert isinstance(record, dict), "it was one when it was judged"  # noqa: S101
    found = cases_of(columns, source, row, record)
    return record, {place: case for place, case in found if isinstance(case, Case)}


def _name(columns: Columns, options: OutputOptions, record: dict[str, Any], sample: Sample) -> Any:
    """What the id column says, else the number of the row; the place in a list of samples is added to either."""
    row = sample.row if options.id is None else record.get(options.id)
    return f"{row}.{sample.sample}" if columns.samples is not None else row


def _prompt(case: Case) -> str:
    """The question as a policy would be asked it."""
    options = (case.question.options or {}).items()
    return "\n".join([case.question.text, *(f"{letter}. {text}" for letter, text in options)])
