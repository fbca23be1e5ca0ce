"""Swapped facts as files: a pack to evaluate on, demonstrations to warm up with, and a manifest."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from configs.durable import write_whole
from curriculum.demonstrated import Comparison, Piece, episode, piece_rows, rank_of, ranked
from curriculum.faults import Side
from curriculum.lines import write_lines
from curriculum.swap_rules import words
from curriculum.swapped_facts import VERSION, Claim, side_of, swapped_claims
from retrieval.passage import Passage
from verifier.types import EvidencePassage

MANIFEST = "manifest.json"
QUESTION = "Is the following statement from the medical literature right?"
_NAME = "swapped-facts"
_NAMELESS = words("the a an of and or in on to is are was can may not by for with that from at as be it its")
_QUERY_WORDS = 12
_CHARACTERS = 2800  # of evidence: about the 768 tokens that a judge is shown for a search


def write_claims(
    folder: Path,
    passages: Sequence[Passage],
    sources: Sequence[str],
    *,
    seed: int = 0,
    most: int | None = None,
    sides: Sequence[Side] = tuple(Side),
) -> Mapping[str, Any]:
    """Write claims of both sides and their manifest into `folder`; what is there under the same names is replaced.

    For each side: `SIDE.questions.jsonl` and `SIDE.traces.jsonl`; for training `train.demonstrations.jsonl` as well. The
    passages are not written: index the same sources. The manifest is written last.

    Args:
        sources: what the passages are from, for the manifest.
        most: claims a side at most.

    Returns:
        The manifest.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST).unlink(missing_ok=True)
    recipe = {"seed": seed, "most": most, "sources": list(sources), "passages": len(passages)}
    manifest: dict[str, Any] = {"name": _NAME, "version": VERSION, "recipe": recipe, "sides": {}}
    for side in sides:
        claims = swapped_claims(passages, side, seed=seed, most=most)
        files = {"questions": list(map(question_row, claims)), "traces": list(map(trace_row, claims))}
        if side is Side.TRAIN:
            beside = _neighbours([passage for passage in passages if side_of(passage) is side])
            files["demonstrations"] = [demonstration_row(claim, beside[id(claim.passage)]) for claim in claims]
        kinds = Counter(str(claim.spot.fault) for claim in claims)
        counts = {part: len(rows) for part, rows in files.items()}
        manifest["sides"][str(side)] = {
            "counts": {**counts, "right": sum(claim.label for claim in claims), "kinds": dict(sorted(kinds.items()))},
            "sha256": {
                name: write_lines(folder / name, rows)
                for name, rows in ((f"{side}.{part}.jsonl", rows) for part, rows in files.items())
            },
        }
    write_whole(folder / MANIFEST, json.dumps(manifest, indent=1) + "\n")
    return manifest


def query(claim: Claim) -> str:
    """The claim's words that name something, in order, the first dozen."""
    named = [word for word in re.findall(r"[\w-]+", claim.text) if word.lower() not in _NAMELESS]
    return " ".join(named[:_QUERY_WORDS])


def demonstrate(claim: Claim, found: Sequence[EvidencePassage]) -> tuple[Piece, ...]:
    """The episode for a claim; `found` is what its search gave.

    Raises:
        NoEvidenceError: the claim's passage is not there.
    """
    rank = rank_of(claim.passage.id, found, query(claim))
    return episode(
        f"To check: {claim.text}",
        query(claim),
        found,
        f"Passage [{rank}] says: {claim.source}",
        [Comparison(claim.spot.fault, claim.says, claim.spot.says)],
    )


def question_row(claim: Claim) -> Mapping[str, Any]:
    """A line of `PREFIX.questions.jsonl`."""
    return {"id": claim.id, "dataset": _NAME, "question": QUESTION}


def trace_row(claim: Claim) -> Mapping[str, Any]:
    """A line of `PREFIX.traces.jsonl`. `spot` is what was swapped, or what could have been."""
    return {
        "qid": claim.id,
        "trace_id": f"{claim.id}#01",
        "generator": _NAME,
        "mode": str(claim.spot.fault),
        "reasoning": claim.text,
        "trace_label": claim.label,
        "spot": {
            "kind": str(claim.spot.fault),
            "group": claim.spot.group,
            "start": claim.spot.start,
            "end": claim.spot.start + len(claim.says),
            "says": claim.says,
            "right": claim.spot.says,
        },
        "source_sentence": claim.source,
        "passage_id": claim.passage.id,
        "corpus": claim.passage.corpus,
    }


def demonstration_row(claim: Claim, beside: Sequence[Passage]) -> Mapping[str, Any]:
    """A case, and the episode that judges it, with the claim's passage and those of its neighbours that fit as evidence."""
    place = int(claim.id[-2:], 16) % 10  # first in seven of ten
    room, shown = _CHARACTERS - len(claim.passage.text), list[Passage]()
    for passage in beside:
        if len(passage.text) <= room:
            shown.append(passage)
            room -= len(passage.text)
    shown.insert(0 if place < 7 else min(place - 6, len(shown)), claim.passage)
    return {
        "id": f"{claim.id}#01",
        "question": {"text": QUESTION},
        "trace": {"text": claim.text},
        "label": claim.label,
        "query": query(claim),
        "pieces": piece_rows(demonstrate(claim, ranked(shown))),
    }


def _neighbours(passages: Sequence[Passage]) -> Mapping[int, Sequence[Passage]]:
    """By the identity of a passage, those before and after it: often about the same thing, as what a search finds is."""
    return {
        id(passage): [*passages[max(place - 1, 0) : place], *passages[place + 1 : place + 2]]
        for place, passage in enumerate(passages)
    }
