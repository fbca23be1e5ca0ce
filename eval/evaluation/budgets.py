"""What is saved by drawing and judging traces one after another, and stopping when the leading answer is safe."""

from collections.abc import Sequence

import numpy as np

from eval.columns import Columns
from eval.evaluation.estimates import figure, mean_figure
from eval.evaluation.scorers import Scorer
from eval.evaluation.selection import gathered, judged_by, sizes
from eval.report.schema import Budget, BudgetPoint, Saving
from eval.saving import cross_fit, policy_saving, saving
from eval.spending import Simulation, simulate
from verifier.budget import predicted
from verifier.selection import Strategy

LOSS = 0.01  # of accuracy that choosing where to stop may cost
_FOLDS = 5
_RULE = (
    "Traces are drawn one after another until the chance that the leading answer still leads at the end, "
    "as foreseen from the votes so far, reaches the threshold."
)
_POINTS = 12  # of a curve that are worth a row


def budgets(columns: Columns, judges: Sequence[Scorer]) -> list[Budget]:
    """The majority, and the soft vote of each judge; nothing for fewer than two traces a question."""
    known = gathered(columns)
    if known.candidates.answers_QM.shape[1] < 2:
        return []
    majority = simulate(known.candidates, Strategy.MAJORITY, predicted)
    found = [_budget(Strategy.MAJORITY, "", majority, [_against("the same vote", majority, majority)])]
    for judge in judges:
        if not np.isnan(judge.p).all():
            soft = simulate(judged_by(known, judge), Strategy.SOFT, predicted)
            savings = [_against("the same vote", soft, soft), _against("the majority", majority, soft)]
            found.append(_budget(Strategy.SOFT, judge.name, soft, savings))
    return found


def _budget(strategy: Strategy, scorer: str, found: Simulation, savings: list[Saving]) -> Budget:
    accuracy_TQ, spent_T = found.adaptive.accuracy_TQ, found.adaptive.spent_TQ.mean(axis=1)
    most = len(found.fixed.accuracy_TQ)
    if accuracy_TQ.shape[1] >= _FOLDS:
        policy = cross_fit(found, LOSS, folds=_FOLDS)
        chosen = Saving(
            against=f"the same vote; stop chosen on other questions, for {LOSS:g} less accuracy than N = {most}",
            times=figure(policy_saving(found.fixed, policy)),
            samples=float(policy.curve.spent_TQ.mean()),
            accuracy=mean_figure(policy.curve.accuracy_TQ[0]),
        )
        savings = [*savings, chosen]
    unlimited = [row for row, stop in enumerate(found.stops) if stop.limit == most]  # but for what a question has
    kept = np.unique(np.linspace(0, len(unlimited) - 1, _POINTS).round().astype(np.int64)).tolist()
    return Budget(
        strategy=strategy.value,
        scorer=scorer,
        rule=_RULE,
        points=[
            BudgetPoint(
                threshold=found.stops[row].threshold if np.isfinite(found.stops[row].threshold) else None,
                samples=round(float(spent_T[row]), 6),
                accuracy=mean_figure(accuracy_TQ[row]),
            )
            for row in (unlimited[place] for place in kept)
        ],
        fixed={n: mean_figure(found.fixed.accuracy_TQ[n - 1]) for n in sizes(most)},
        savings=savings,
    )


def _against(name: str, fixed: Simulation, adaptive: Simulation) -> Saving:
    most = len(fixed.fixed.accuracy_TQ)
    times = figure(saving(fixed.fixed, adaptive.adaptive, 0.0))
    return Saving(against=f"{name}, N = {most}, somewhere along the curve", times=times)
