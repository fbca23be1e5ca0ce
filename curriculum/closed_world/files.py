"""A world as files: a corpus to index, a pack to evaluate on, demonstrations to warm up with, and a manifest."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from configs.durable import write_whole
from curriculum.closed_world.demonstrations import demonstrate, demonstrate_without_search, own_evidence, query
from curriculum.closed_world.facts import told
from curriculum.closed_world.passages import aspect_of, corpus_name, passage_id, passages
from curriculum.closed_world.questions import Asked, questions
from curriculum.closed_world.traces import Claim, Reasoned, traces
from curriculum.closed_world.world import VERSION, Recipe, World, make_world
from curriculum.demonstrated import Piece, piece_rows
from curriculum.faults import Side
from curriculum.lines import write_lines
from retrieval.passage import Passage

MANIFEST = "manifest.json"
_NAME = "closed-world"


def write_worlds(folder: Path, recipe: Recipe, sides: Sequence[Side] = tuple(Side)) -> Mapping[str, Any]:
    """Write the worlds of a recipe and their manifest into `folder`; what is there under the same names is replaced.

    For each side: `SIDE.formulary.jsonl`, `SIDE.questions.jsonl`, `SIDE.traces.jsonl`; for training
    `train.demonstrations.jsonl` and `train.demonstrations-without-search.jsonl` as well. The manifest is written last. The same
    recipe and version give the same bytes.

    Returns:
        The manifest.

    Raises:
        NamesSpentError: there are not enough names for so large a world.
        OSError: the folder cannot be written to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST).unlink(missing_ok=True)
    manifest: dict[str, Any] = {"name": _NAME, "version": VERSION, "recipe": recipe.model_dump(), "sides": {}}
    for side in sides:
        world = make_world(side, recipe)
        files = {f"{side}.{part}.jsonl": list(rows) for part, rows in _parts(world)}
        manifest["sides"][str(side)] = {
            "counts": _counts(world, files),
            "sha256": {name: write_lines(folder / name, rows) for name, rows in files.items()},
        }
    write_whole(folder / MANIFEST, json.dumps(manifest, indent=1) + "\n")
    return manifest


def question_row(asked: Asked) -> Mapping[str, Any]:
    """A line of `PREFIX.questions.jsonl`."""
    return {
        "id": asked.id,
        "dataset": _NAME,
        "question": asked.stem,
        "options": asked.options,
        "answer": asked.gold,
        "answer_text": asked.options[asked.gold],
        "template": asked.template,
    }


def trace_row(trace: Reasoned) -> Mapping[str, Any]:
    """A line of `PREFIX.traces.jsonl`; `trace_label` is 1 if the trace is free of errors, whatever its final answer."""
    return {
        "qid": trace.asked.id,
        "trace_id": trace.id,
        "generator": _NAME,
        "mode": trace.frame,
        "reasoning": trace.reasoning,
        "pred": trace.answer,
        "gold": trace.asked.gold,
        "trace_label": trace.label,
        "error": _error(trace),
        "claims": [_claim(claim) for claim in trace.claims],
        "passage_id": passage_id(trace.drug, aspect_of(trace.asked.attribute)),
    }


def demonstration_row(trace: Reasoned, pieces: Sequence[Piece]) -> Mapping[str, Any]:
    """A case, and the episode that judges it, piece by piece with its author."""
    return {
        "id": trace.id,
        "question": {"text": trace.asked.stem, "options": trace.asked.options},
        "trace": {"text": trace.reasoning},
        "label": trace.label,
        "query": query(trace),
        "pieces": piece_rows(pieces),
    }


def passage_row(passage: Passage) -> Mapping[str, Any]:
    """A line of a corpus that `medverify index build` reads."""
    return passage.model_dump(include={"id", "title", "text", "topic", "source", "license", "language"})


def _parts(world: World) -> Iterator[tuple[str, Iterable[Mapping[str, Any]]]]:
    asked = list(questions(world))
    reasoned = [trace for one in asked for trace in traces(world, one)]
    yield corpus_name(world).removeprefix(f"{world.side}."), map(passage_row, passages(world))
    yield "questions", map(question_row, asked)
    yield "traces", map(trace_row, reasoned)
    if world.side is Side.TRAIN:  # whoever has none of the test world cannot train on them
        searched = (demonstrate(trace, own_evidence(world, trace)) for trace in reasoned)
        yield "demonstrations", map(demonstration_row, reasoned, searched)
        yield (
            "demonstrations-without-search",
            map(demonstration_row, reasoned, map(demonstrate_without_search, reasoned)),
        )


def _error(trace: Reasoned) -> Mapping[str, Any] | None:
    place = trace.wrong
    if place is None:
        return None
    claim = trace.claims[place]
    return {
        "kind": str(trace.fault),
        "claim": place,
        "start": claim.start,
        "end": claim.end,
        "sentence": trace.reasoning[claim.start : claim.end],
        "says": told(claim.said),
        "right": told(claim.true),
    }


def _claim(claim: Claim) -> Mapping[str, Any]:
    return {
        "attribute": str(claim.said.attribute),
        "says": told(claim.said),
        "right": told(claim.true),
        "start": claim.start,
        "end": claim.end,
    }


def _counts(world: World, files: Mapping[str, Sequence[Mapping[str, Any]]]) -> Mapping[str, Any]:
    rows = files[f"{world.side}.traces.jsonl"]
    errors = [row["error"]["kind"] for row in rows if row["error"]]
    return {
        **{name.split(".")[1]: len(rows) for name, rows in files.items()},
        "drugs": len(world.drugs),
        "right_traces": sum(row["trace_label"] for row in rows),
        "wrong_answers": sum(row["pred"] != row["gold"] for row in rows),
        "errors": {kind: errors.count(kind) for kind in sorted(set(errors))},
    }
