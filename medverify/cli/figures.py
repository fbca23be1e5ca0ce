"""Figures with intervals, for people and for programs."""

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eval.metrics import Estimate
    from verifier.calibration import Interval


def number(value: float) -> str:
    """Three digits; a dash for what is undefined."""
    return "—" if math.isnan(value) else f"{value:.3f}"


def interval(figure: "Estimate | Interval") -> str:
    """`[low, high]`; a dash for what is undefined."""
    return "—" if math.isnan(figure.low) else f"[{figure.low:.3f}, {figure.high:.3f}]"


def p_value(value: float | None) -> str:
    """Three digits, and never 0; a dash for what is undefined."""
    return "—" if value is None or math.isnan(value) else f"{value:.3f}" if value >= 0.001 else "< 0.001"


def to_json(record: Any) -> str:
    """JSON of dataclasses and what they hold; what is undefined is null."""
    return json.dumps(_plain(record), ensure_ascii=False, indent=1, allow_nan=False)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return None if isinstance(value, float) and math.isnan(value) else value
