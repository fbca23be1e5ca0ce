"""Pictures of a run: how its numbers went."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from configs.durable import publish

#: One panel each: its title, and the numbers in it.
_PANELS = {
    "Reward": ("reward", "correctness", "held_out_accuracy"),
    "Form": ("format", "searched", "held_out_format"),
    "Verdicts that say 1": ("said_1", "held_out_said_1"),
    "Groups without a spread": ("frac_reward_zero_std",),
    "Tokens of an episode": ("length",),
    "Entropy per token (nats)": ("entropy",),
    "Distance per token (nats)": ("kl_to_start", "kl_to_sampler"),
    "Warm-up loss (nats)": ("loss", "verdict_loss"),
}
_WARM_UP = "warm-up"
_COLUMNS = 2


def draw_curves(rows: Sequence[Mapping[str, Any]], path: Path) -> bool:
    """Draw the curves of all stages one after the other; the file appears whole.

    Args:
        rows: lines of `metrics.jsonl`.
        path: an .svg or .png.

    Returns:
        False if matplotlib is not installed; it comes with the extra `eval`.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    panels = {title: found for title, names in _PANELS.items() if (found := _series(rows, names))}
    count = -(-len(panels) // _COLUMNS) or 1
    figure = Figure(figsize=(5.5 * _COLUMNS, 2.6 * count), layout="constrained")
    for place, (title, series) in enumerate(panels.items(), start=1):
        axes = figure.add_subplot(count, _COLUMNS, place)
        axes.set_title(title, fontsize=10)
        axes.grid(alpha=0.3)
        axes.set_xlabel("step of the optimiser", fontsize=8)
        for name, points in series.items():
            marker = "o" if name.startswith("held_out") or len(points) < 3 else None
            axes.plot(
                *zip(*points, strict=True), label=name.replace("_", " "), marker=marker, markersize=3, linewidth=1.2
            )
        for border in _borders(rows):
            axes.axvline(border, color="grey", linewidth=0.8, linestyle=":")
        axes.legend(fontsize=7)
    part = path.with_name(f".{path.name}.part")
    figure.savefig(part, format=path.suffix.removeprefix("."))
    publish(part, path)
    return True


def _series(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, list[tuple[int, float]]]:
    warm = "loss" in names  # the losses of warm-up and reinforcement have nothing to do with one another
    found = {}
    for name in names:
        points = [
            (row["total"], row[name])
            for row in rows
            if row.get(name) is not None and (not warm or row["stage"] == _WARM_UP)
        ]
        if points:
            found[name] = points
    return found


def _borders(rows: Sequence[Mapping[str, Any]]) -> list[float]:
    """Where one stage ends and the next begins."""
    stages = [(row["total"], row["stage"]) for row in rows if not row["stage"].startswith("selection")]
    return [later[0] - 0.5 for earlier, later in pairwise(stages) if earlier[1] != later[1]]
