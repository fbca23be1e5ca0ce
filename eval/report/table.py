"""A table as data: cells, how numbers are written, and what stands for one that is undefined."""

from dataclasses import dataclass

from eval.report.schema import Figure

ABSENT = "—"


@dataclass(frozen=True, slots=True)
class Cell:
    """What one cell says; the interval stands apart, for it may be shown smaller."""

    text: str
    interval: str = ""

    def __str__(self) -> str:
        return f"{self.text} {self.interval}".rstrip()


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of equal length under a header; the first columns are words, `numbers` says how many at the end are not."""

    title: str
    header: tuple[str, ...]
    rows: list[tuple[Cell, ...]]
    numbers: int
    note: str = ""
    wide: bool = False  # texts rather than figures


def figure(value: Figure | None, digits: int = 3) -> Cell:
    """A value with its interval, or a dash for one that is undefined."""
    if value is None or value.value is None:
        return Cell(ABSENT)
    if value.low is None or value.high is None:
        return Cell(f"{value.value:.{digits}f}")
    return Cell(f"{value.value:.{digits}f}", f"[{value.low:.{digits}f}, {value.high:.{digits}f}]")


def words(*texts: str) -> tuple[Cell, ...]:
    """Cells of plain text."""
    return tuple(Cell(text) for text in texts)


def number(value: float | None, digits: int = 3) -> str:
    """A number, or a dash for one that is undefined."""
    return ABSENT if value is None else f"{value:.{digits}f}"


def share(value: Figure | None) -> Cell:
    """A share in per cent with its interval, or a dash."""
    if value is None or value.value is None:
        return Cell(ABSENT)
    if value.low is None or value.high is None:
        return Cell(f"{value.value:.1%}")
    return Cell(f"{value.value:.1%}", f"[{value.low:.1%}, {value.high:.1%}]")
