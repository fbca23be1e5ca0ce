"""Who has an opinion about the traces: the judge, its votes over seeds, its calibrated p, the judge without search, baselines."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from eval.baselines import BASELINES, verdicts
from eval.candidates import Flags
from eval.columns import NOT_JUDGED, Columns
from eval.metrics import Floats, Labels
from verifier.calibration import question_digest
from verifier.packs import LabelledCase
from verifier.selection import combine_judgments
from verifier.types import Judgment


@dataclass(frozen=True, slots=True)
class Scorer:
    """One opinion on each of N traces."""

    name: str
    p: Floats  # float64 [N] in 0 … 1; NaN: none
    verdicts: Labels  # int64 [N]; -1: none
    come_to: Flags  # bool [N]: it was asked, and may have failed
    is_judge: bool  # else a baseline, whose p is an order more than a probability
    is_calibrated: bool = False  # its p is another scorer's in the same order: only what it means is new

    def take(self, rows: Labels) -> "Scorer":
        """Its opinion on some of the traces."""
        return replace(self, p=self.p[rows], verdicts=self.verdicts[rows], come_to=self.come_to[rows])


def judge_vote(by_seed: Mapping[int, Columns]) -> Scorer:
    """The judgments of all seeds as one: mean p, verdict of the majority; those that failed have no part in it.

    There is none yet of a trace that some seeds have not come to: it would be the vote of fewer.
    """
    p_SN = np.stack([columns.p for columns in by_seed.values()])
    verdicts_SN = np.stack([columns.verdicts for columns in by_seed.values()])
    come_to: Flags = np.logical_and.reduce([columns.come_to for columns in by_seed.values()])
    p, decided = np.full(p_SN.shape[1], np.nan), np.full(p_SN.shape[1], NOT_JUDGED, dtype=np.int64)
    for row in np.flatnonzero(come_to):
        judged = verdicts_SN[:, row] != NOT_JUDGED
        mean, verdict = combine_judgments(p_SN[judged, row].tolist(), verdicts_SN[judged, row].tolist())
        if mean is not None and verdict is not None:
            p[row], decided[row] = mean, verdict
    return Scorer(f"vote of {len(by_seed)} seeds", p, decided, come_to, is_judge=True)


def calibrated(
    name: str, cases: Sequence[LabelledCase], judgments: Iterable[Judgment], fitted_on: Collection[str] = ()
) -> Scorer | None:
    """What a judge's calibration makes of its p, on questions that it was not fitted on; None if there is no such judgment.

    Args:
        name: of the judge.
        cases: all traces of the pack.
        judgments: of the judge.
        fitted_on: digests of the questions that the calibration was fitted on.
    """
    known = frozenset(fitted_on)
    said = {
        one.id: (one.p_calibrated, one.verdict)
        for one in judgments
        if one.p_calibrated is not None and one.verdict is not None
    }
    p, decided = np.full(len(cases), np.nan), np.full(len(cases), NOT_JUDGED, dtype=np.int64)
    for row, labelled in enumerate(cases):
        one = said.get(labelled.case.id)
        if one is not None and question_digest(labelled.case.question) not in known:
            p[row], decided[row] = one
    known_p = ~np.isnan(p)
    if not known_p.any():
        return None
    return Scorer(f"{name}, calibrated", p, decided, known_p, is_judge=True, is_calibrated=True)


def baselines(columns: Columns, texts: Sequence[str]) -> list[Scorer]:
    """All baselines on the same traces, whose texts these are."""
    found = [(name, opinion(columns, texts)) for name, opinion in BASELINES.items()]
    everywhere = np.ones(len(columns), dtype=np.bool_)
    return [Scorer(name, p, verdicts(p), everywhere, is_judge=False) for name, p in found]
