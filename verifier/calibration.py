"""Calibration: a map from a judge's p(1) to how often such traces are right, kept in a file and applied to that judge only.

It never falls, so it changes no ranking; what it mends is what the number says. `eval/calibrate.py` makes it, on labelled
judgments; here is what it is and how it is applied.
"""

import hashlib
import math
from bisect import bisect_right
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from verifier.types import Question

MARGIN = 1e-6  # p is kept so far from 0 and 1 before a logarithm is taken of it


class CalibrationError(ValueError):
    """A calibration that cannot be used; the message says why and what to do."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Temperature(_Part):
    """`sigmoid(slope * logit(p))` (Guo et al. 2017)."""

    method: Literal["temperature"] = "temperature"
    slope: Annotated[
        float, Field(ge=0, description="1 / temperature; below 1 the judge was too sure; 0: it knew nothing.")
    ]

    def apply(self, p: float) -> float:
        """The calibrated probability."""
        yes, no = log_odds(p)
        return _sigmoid(self.slope * (yes - no))


class Beta(_Part):
    """`sigmoid(a ln p - b ln(1 - p) + c)` (Kull et al. 2017): a slope for each side and a shift."""

    method: Literal["beta"] = "beta"
    a: Annotated[float, Field(ge=0)]
    b: Annotated[float, Field(ge=0)]
    c: float

    def apply(self, p: float) -> float:
        """The calibrated probability."""
        yes, no = log_odds(p)
        return _sigmoid(self.a * yes - self.b * no + self.c)


class Isotonic(_Part):
    """Straight lines between knots, level outside them (Zadrozny & Elkan 2002)."""

    method: Literal["isotonic"] = "isotonic"
    p: Annotated[list[Annotated[float, Field(ge=0, le=1)]], Field(min_length=1, description="Rising.")]
    calibrated: Annotated[list[Annotated[float, Field(ge=0, le=1)]], Field(min_length=1, description="Never falling.")]

    @model_validator(mode="after")
    def _rising(self) -> Self:
        if len(self.p) != len(self.calibrated):
            raise ValueError("expected as many calibrated values as knots")
        if any(a >= b for a, b in zip(self.p, self.p[1:], strict=False)):
            raise ValueError("knots must rise")
        if any(a > b for a, b in zip(self.calibrated, self.calibrated[1:], strict=False)):
            raise ValueError("calibrated values must never fall")
        return self

    def apply(self, p: float) -> float:
        """The calibrated probability."""
        after = bisect_right(self.p, p)
        if after in (0, len(self.p)):
            return self.calibrated[0 if after == 0 else -1]
        (x0, x1), (y0, y1) = self.p[after - 1 : after + 1], self.calibrated[after - 1 : after + 1]
        return y0 + (y1 - y0) * (p - x0) / (x1 - x0)


Curve = Annotated[Temperature | Beta | Isotonic, Field(discriminator="method")]


class Interval(_Part):
    """A figure with its 95 % interval over questions."""

    value: float
    low: float
    high: float


class Figure(_Part):
    """A measure of calibration, before and after; after is out of fold."""

    before: Interval
    after: Interval
    change: Interval  # after - before on the same traces
    p_value: float | None  # two-sided, of no change; None for calibration errors, whose tests would find too much


class Fitted(_Part):
    """What a calibration was fitted on."""

    pack: str
    questions: Annotated[int, Field(ge=1)]
    traces: Annotated[int, Field(ge=1, description="Judged and labelled.")]
    right: Annotated[int, Field(ge=1, description="Of these, with label 1.")]
    folds: Annotated[int, Field(ge=2, description="Each fitted on the questions of the others, for the figures.")]
    seed: int
    question_digests: Annotated[list[str], Field(description="Figures on any of these questions would be in-sample.")]


class Calibration(_Part):
    """A calibration, as its file holds it."""

    version: Literal[1] = 1
    judge_id: Annotated[str, Field(min_length=1, description="The judge it was fitted for; no other may use it.")]
    curve: Curve
    fitted: Fitted
    figures: dict[str, Figure]

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a file.

        Raises:
            CalibrationError: it cannot be read, or is no calibration.
        """
        try:
            return cls.model_validate_json(path.read_bytes())
        except OSError as error:
            raise CalibrationError(f"{path}: cannot be read: {error}") from error
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "the file"
            raise CalibrationError(f"{path} is no calibration: {where}: {first['msg']}") from error

    def to_json(self) -> str:
        """What `load` reads."""
        return self.model_dump_json(indent=1) + "\n"

    def describe(self) -> dict[str, Any]:
        """The calibration for people: without the questions it was fitted on and without the knots of a curve."""
        record = self.model_dump(mode="json", exclude={"version", "judge_id", "curve"})
        del record["fitted"]["question_digests"]
        return {"method": self.curve.method, **record}

    def check_judge(self, judge_id: str) -> None:
        """See that it was fitted for this judge.

        Raises:
            CalibrationError: it was not.
        """
        if judge_id != self.judge_id:
            raise CalibrationError(
                f"the calibration was fitted for the judge {self.judge_id[:12]}…, not for {judge_id[:12]}…: "
                "fit one for this judge with `medverify calibrate`"
            )

    def apply(self, p: float) -> float:
        """The calibrated probability of a p(1) of this judge.

        Raises:
            ValueError: p is not in 0 … 1, or is NaN.
        """
        if not 0 <= p <= 1:
            raise ValueError(f"expected a probability, found {p}")
        return self.curve.apply(p)


def question_digest(question: Question) -> str:
    """What a question is known by, whatever its id: half of a SHA-256 over its text and options."""
    return hashlib.sha256(question.model_dump_json().encode()).hexdigest()[:32]


def log_odds(p: float) -> tuple[float, float]:
    """ln p and ln(1 - p), p kept off 0 and 1."""
    p = min(max(p, MARGIN), 1 - MARGIN)
    return math.log(p), math.log1p(-p)


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))
