"""The figures of a pack, drawn from the report alone: the same report gives the same bytes."""

import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import cycle
from typing import Any

from eval.report.palette import GROUND, INK, LINE, MUTED, SERIES
from eval.report.schema import Budget, PackReport, ScorerCurves, Selection

_SIZE = (4.8, 3.8)  # inches, of 72 points in SVG: small, so that words can be read on a phone
_MARKERS = "osD^vPX"
_STYLE: Mapping[str, Any] = {
    "svg.fonttype": "none",  # text stays text: it can be read, searched and coloured
    "svg.hashsalt": "medverify",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.facecolor": GROUND,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": GROUND,
    "grid.color": LINE,
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "legend.labelcolor": INK,
    "lines.linewidth": 1.8,
    "lines.markersize": 4.5,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
}


def figures(pack: PackReport) -> dict[str, tuple[str, str]]:
    """By name: what the figure shows, in a sentence for those who cannot see it, and its drawing in stand-in colours.

    A figure that has nothing to show is left out.
    """
    drawn: dict[str, tuple[str, str]] = {}
    selection = _worth_drawing(pack.selection)
    if selection:
        words = f"Accuracy of the answers picked against the number of traces a question, {selection[0].generator}."
        drawn["scaling"] = words, _svg("scaling", lambda axes: _scaling(axes, selection))
    curves = pack.curves
    if any(one.reliability for one in curves):
        drawn["reliability"] = (
            "Share of right traces against p, in ranges of p. On the diagonal p is what it says.",
            _svg("reliability", lambda axes: _reliability(axes, curves)),
        )
    if curves:
        drawn["roc"] = (
            "Right traces passed against wrong traces passed, over all thresholds of p. The diagonal is chance.",
            _svg("roc", lambda axes: _roc(axes, curves)),
        )
        drawn["risk-coverage"] = (
            "Share of wrong verdicts among those kept, when the least sure are set aside first.",
            _svg("risk-coverage", lambda axes: _risk(axes, curves)),
        )
        drawn["histogram"] = (
            f"How many right and wrong traces were given which p by {curves[0].scorer}.",
            _svg("histogram", lambda axes: _histogram(axes, curves[0])),
        )
    if pack.budgets:
        drawn["budget"] = (
            "Accuracy against traces drawn a question, on average: stopping when the answer is safe, beside fixed numbers. "
            "Star: where to stop was chosen on other questions.",
            _svg("budget", lambda axes: _budgets(axes, pack.budgets)),
        )
    return drawn


def _svg(name: str, draw: Callable[[Any], None]) -> str:
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure as Canvas

    with rc_context(dict(_STYLE)):
        canvas = Canvas(figsize=_SIZE, layout="constrained")
        draw(canvas.add_subplot())
        file = io.StringIO()
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        FigureCanvasSVG(canvas).print_svg(file, metadata=nothing)
    # Ids are unique within one drawing only, and the page holds many.
    return re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", file.getvalue())


def _worth_drawing(rows: Sequence[Selection]) -> list[Selection]:
    """Of the first group, which is the largest: the judge's strategies between majority and ceiling, the best-of-n of others.

    A figure of all rows could not be read; the tables have them.
    """
    group = [row for row in rows if row.generator == rows[0].generator]
    judge = next((row.scorer for row in group if row.scorer), "")
    own = [row for row in group if row.scorer in ("", judge)]
    others = [row for row in group if row not in own and row.strategy == group[1].strategy]
    return [*own, *others][: len(SERIES)]


def _scaling(axes: Any, rows: Sequence[Selection]) -> None:
    for row, (colour, marker) in zip(rows, _looks(), strict=False):
        name = f"{row.strategy}, {row.scorer}" if row.scorer else row.strategy
        _line(
            axes,
            list(row.accuracy),
            [one.value for one in row.accuracy.values()],
            label=name,
            color=colour,
            marker=marker,
        )
    _powers_of_two(axes, sorted({n for row in rows for n in row.accuracy}))
    axes.set_xlabel("traces a question (N)")
    axes.set_ylabel("accuracy")
    _legend_below(axes)


def _reliability(axes: Any, curves: Iterable[ScorerCurves]) -> None:
    _diagonal(axes)
    for one, (colour, marker) in zip(curves, _looks(), strict=False):
        if one.reliability:
            axes.plot(
                [bin.p for bin in one.reliability],
                [bin.right for bin in one.reliability],
                label=one.scorer,
                color=colour,
                marker=marker,
            )
    _unit_square(axes, "mean p of the range", "share of right traces")


def _roc(axes: Any, curves: Iterable[ScorerCurves]) -> None:
    _diagonal(axes)
    for one, colour in zip(curves, cycle(SERIES), strict=False):
        if one.roc is not None:
            axes.plot(one.roc.x, one.roc.y, label=one.scorer, color=colour)
    _unit_square(axes, "wrong traces passed", "right traces passed")


def _risk(axes: Any, curves: Iterable[ScorerCurves]) -> None:
    for one, colour in zip(curves, cycle(SERIES), strict=False):
        if one.risk_coverage is not None:
            axes.plot(one.risk_coverage.x, one.risk_coverage.y, label=one.scorer, color=colour)
    axes.set_xlim(0, 1)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("coverage: share of traces with a verdict")
    axes.set_ylabel("risk: share of these that are wrong")
    _legend_below(axes)


def _histogram(axes: Any, one: ScorerCurves) -> None:
    bins = len(one.histogram_right)
    edges = [(position + 0.5) / bins for position in range(bins)]
    width = 0.42 / bins
    left, right = [edge - width / 2 for edge in edges], [edge + width / 2 for edge in edges]
    axes.bar(left, one.histogram_right, width, color=SERIES[2], label="right traces")
    axes.bar(right, one.histogram_wrong, width, color=SERIES[1], label="wrong traces")
    axes.set_xlim(0, 1)
    axes.set_xlabel(f"p from {one.scorer}")
    axes.set_ylabel("traces")
    _legend_below(axes)


def _budgets(axes: Any, found: Iterable[Budget]) -> None:
    for one, (colour, marker) in zip(found, _looks(), strict=False):
        name = f"{one.strategy}, {one.scorer}" if one.scorer else one.strategy
        look = {"color": colour, "marker": marker}
        points = sorted(one.points, key=lambda point: point.samples)
        samples, accuracy = [point.samples for point in points], [point.accuracy.value for point in points]
        _line(axes, samples, accuracy, label=f"{name}, adaptive", **look)
        fixed = [figure.value for figure in one.fixed.values()]
        _line(axes, list(one.fixed), fixed, label=f"{name}, fixed", fillstyle="none", linestyle=":", **look)
        for saving in one.savings:
            if saving.samples is not None and saving.accuracy is not None:
                place = [saving.samples], [saving.accuracy.value]
                axes.plot(*place, "*", color=colour, markersize=11, label=f"{name}, chosen")
    _powers_of_two(axes, sorted({n for one in found for n in one.fixed}))
    axes.set_xlabel("traces drawn a question, on average")
    axes.set_ylabel("accuracy")
    _legend_below(axes)


def _line(axes: Any, x: Sequence[float], y: Sequence[float | None], **look: Any) -> None:
    """A line through the values that are defined."""
    kept = [(at, value) for at, value in zip(x, y, strict=True) if value is not None]
    axes.plot([at for at, _ in kept], [value for _, value in kept], **look)


def _looks() -> Iterator[tuple[str, str]]:
    """Colour and marker of one line after another."""
    return cycle(zip(SERIES, _MARKERS, strict=True))


def _powers_of_two(axes: Any, sizes: list[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(n) for n in sizes])
    axes.minorticks_off()


def _diagonal(axes: Any) -> None:
    axes.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle="--")


def _unit_square(axes: Any, x: str, y: str) -> None:
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    _legend_below(axes)


def _legend_below(axes: Any) -> None:
    """Outside the axes, where it hides nothing."""
    if axes.get_legend_handles_labels()[0]:
        axes.figure.legend(loc="outside lower center", ncols=2)
