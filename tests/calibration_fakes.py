"""Calibrations made by hand."""

from verifier.calibration import Calibration, Curve, Figure, Fitted, Interval, Temperature


def calibration(judge_id: str, curve: Curve | None = None) -> Calibration:
    """A calibration of this judge; one that halves log-odds if no curve is given."""
    interval = Interval(value=0.2, low=0.1, high=0.3)
    return Calibration(
        judge_id=judge_id,
        curve=curve or Temperature(slope=0.5),
        fitted=Fitted(pack="dev", questions=50, traces=500, right=200, folds=5, seed=0, question_digests=["ab"]),
        figures={"Brier": Figure(before=interval, after=interval, change=interval, p_value=0.5)},
    )
