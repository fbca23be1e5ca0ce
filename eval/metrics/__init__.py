"""How good a judge is: pure functions over labels and scores, and intervals that draw whole questions.

A metric takes labels (int64 [N], 1 or 0) and scores (float64 [N]) and gives a number, NaN where it is undefined. What was not
judged or has no label is left out before: a metric refuses NaN rather than taking it for a number.
"""

from eval.metrics.agreement import fleiss_kappa, pairwise_agreement
from eval.metrics.calibration_error import (
    ReliabilityBin,
    brier,
    ece,
    ece_equal_mass,
    log_loss,
    reliability_curve,
)
from eval.metrics.discrimination import Roc, accuracy, auprc, auroc, balanced_accuracy, roc_curve
from eval.metrics.draws import Estimate
from eval.metrics.intervals import (
    Difference,
    Resampled,
    bootstrap,
    clustered_bootstrap,
    paired_difference,
    resample,
)
from eval.metrics.metric import Distance, Floats, Labels, Metric
from eval.metrics.risk_coverage import Abstention, RiskCoverage, abstention, aurc, risk_coverage
from eval.metrics.smooth_ece import smooth_ece

__all__ = [
    "Abstention",
    "Difference",
    "Distance",
    "Estimate",
    "Floats",
    "Labels",
    "Metric",
    "ReliabilityBin",
    "Resampled",
    "RiskCoverage",
    "Roc",
    "abstention",
    "accuracy",
    "auprc",
    "aurc",
    "auroc",
    "balanced_accuracy",
    "bootstrap",
    "brier",
    "clustered_bootstrap",
    "ece",
    "ece_equal_mass",
    "fleiss_kappa",
    "log_loss",
    "paired_difference",
    "pairwise_agreement",
    "reliability_curve",
    "resample",
    "risk_coverage",
    "roc_curve",
    "smooth_ece",
]
