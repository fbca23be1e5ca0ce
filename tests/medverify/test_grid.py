"""Tables of figures at the width of a terminal."""

import io

import pytest
from rich.console import Console

from eval.report.table import Cell, Table
from medverify.cli.grid import show

SCORERS = ("judge", "judge without search", "self-consistency")
FIGURES = ("accuracy", "balanced accuracy", "AUROC", "AUPRC", "Brier", "ECE", "smooth ECE")
TABLE = Table(
    "Verification",
    ("scorer", "traces", *FIGURES),
    [
        (Cell(name), Cell("2,871"), *(Cell(f"0.{row}{place}5", f"[0.{row}{place}1, 0.{row}{place}9]") for place in range(7)))
        for row, name in enumerate(SCORERS)
    ],
    8,
    "In brackets: 95 % intervals over questions.",
)  # fmt: skip


def printed(table: Table, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    show(table, console)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


@pytest.mark.parametrize("width", [48, 60, 80, 120, 400])
def test_no_figure_is_broken_and_none_is_left_out(width: int) -> None:
    lines = printed(TABLE, width)
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    for row in TABLE.rows:
        for cell in row[2:]:
            assert text.count(cell.text) == text.count(cell.interval) == 1
    assert text.count("Verification") == 1
    assert text.count("95 %") == 1


def test_a_wide_terminal_has_one_table_with_the_intervals_beside() -> None:
    assert any(f"{TABLE.rows[0][2]}" in line and f"{TABLE.rows[0][8]}" in line for line in printed(TABLE, 400))


def test_each_part_says_whose_figures_they_are() -> None:
    lines = printed(TABLE, 80)
    heads = [line for line in lines if "scorer" in line]
    assert 1 < len(heads) <= 3
    assert sum("self-consistency" in line for line in lines) == len(heads)


def test_texts_go_on_in_the_next_line() -> None:
    table = Table("Not judged", ("trace", "detail"), [(Cell("t1"), Cell("no verdict within the deadline " * 5))], 0)
    lines = printed(table, 60)
    assert max(map(len, lines)) <= 60
    assert sum("deadline" in line for line in lines) >= 3
