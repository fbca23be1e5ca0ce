"""What the choice among a question's traces is worth: without a judge, with one, and when drawing stops early."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from eval.baselines import RANDOM
from eval.candidates import Candidates, Gathered, gather
from eval.closed_forms import any_right_at
from eval.columns import NOT_JUDGED, Columns
from eval.evaluation.estimates import mean_figure, ratio_figure
from eval.evaluation.scorers import Scorer
from eval.report.schema import Selection, Votes
from eval.scaling import accuracy_at, scaling
from verifier.selection import Strategy

MOST = 32  # traces a question
ANY_RIGHT = "any right"
_OF_A_JUDGE = (Strategy.BEST, Strategy.HARD, Strategy.SOFT)
#: It looks at all traces of the question to score one: as best-of-n among fewer it would know more than they tell.
_NOT_A_CHOICE = "self-consistency"


def votes(columns: Columns, generator: str) -> Votes:
    """Mean over traces, majority and any right over questions with a known answer, all traces taken.

    Mean and any right go by the labels, for an answer may be readable to who labelled it alone; votes have only answers.
    """
    known = gathered(columns)
    batch = known.candidates
    every = max(every_trace(batch), 1)
    right = (columns.labels == 1).astype(np.float64)
    right_QM = known.spread(right) == 1
    return Votes(
        generator=generator,
        mean=ratio_figure(right, np.ones(len(right)), columns.questions),
        majority=mean_figure(accuracy_at(Strategy.MAJORITY, batch, every)),
        any_right=mean_figure(any_right_at(right_QM, batch.counts, every)),
    )


def selection_table(columns: Columns, generator: str, scorers: Iterable[Scorer]) -> list[Selection]:
    """Expected accuracy by number of traces: the majority, each strategy with each scorer's p, and the ceiling.

    Of baselines best-of-n alone. A scorer without any opinion on these traces is left out.
    """
    known = gathered(columns)
    batch = known.candidates
    wanted = sizes(every_trace(batch))
    if not wanted:
        return []
    rows = [(Strategy.MAJORITY.value, "", scaling(batch, wanted, [Strategy.MAJORITY])[Strategy.MAJORITY])]
    for scorer in scorers:
        if not np.isnan(scorer.p).all() and scorer.name != _NOT_A_CHOICE:
            strategies = _OF_A_JUDGE if scorer.is_judge else (Strategy.BEST,)
            curves = scaling(judged_by(known, scorer), wanted, strategies)
            if scorer.name == RANDOM:  # not what one draw of numbers came to, but what to expect: any trace is as good
                curves = {strategy: np.broadcast_to(curve[:1], curve.shape) for strategy, curve in curves.items()}
            rows += [(strategy.value, scorer.name, curves[strategy]) for strategy in strategies]
    rows.append((ANY_RIGHT, "", np.stack([any_right_at(batch.right, batch.counts, n) for n in wanted])))
    return [
        Selection(
            strategy=strategy,
            scorer=scorer,
            generator=generator,
            accuracy={n: mean_figure(accuracy_Q) for n, accuracy_Q in zip(wanted, curve, strict=True)},
        )
        for strategy, scorer, curve in rows
    ]


def gathered(columns: Columns) -> Gathered:
    """The traces by question; questions without a known answer are left out."""
    return gather(columns.questions, columns.answers, columns.golds, columns.p, columns.verdicts)


def judged_by(known: Gathered, scorer: Scorer) -> Candidates:
    """The same traces with this scorer's opinion."""
    verdicts_QM = np.where(known.rows_QM >= 0, scorer.verdicts[known.rows_QM], NOT_JUDGED)
    return replace(known.candidates, p_QM=known.spread(scorer.p), verdicts_QM=verdicts_QM)


def every_trace(batch: Candidates) -> int:
    """The most traces that any question has; 0 without questions."""
    return int(batch.answers_QM.shape[1])


def sizes(most: int) -> list[int]:
    """1, 2, 4, … as far as there are traces, and all of them."""
    powers = [2**power for power in range(MOST.bit_length()) if 2**power <= min(most, MOST)]
    return [*powers, most] if most < MOST and powers and powers[-1] < most else powers
