"""Tables of figures for a terminal of any width: what does not fit is set in parts, one under the other."""

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from eval.report.table import Cell, Table
from medverify.cli.render import plain

_FRAME = 3  # columns of a terminal that each column of a table takes for its border and the room beside it
_WORDS = 24  # most that a column of words takes, unless one word is longer; the rest goes on in the next line


def show(table: Table, console: Console) -> None:
    """Print a table. Where it is too wide, intervals go under their values, and if need be columns into parts of their own."""
    for grid in grids(table, console.width):
        console.print(grid)


def grids(table: Table, width: int) -> list[Grid]:
    """The table as so many parts as the width needs; each has the columns of words, the first the title, the last the note."""
    words = len(table.header) - table.numbers
    if not table.numbers:
        return [_grid(table, range(words), stacked=False, title=table.title, note=table.note)]
    room = width - 1 - sum(_words_width(table, place) + _FRAME for place in range(words))
    places = range(words, len(table.header))
    stacked = sum(_width(table, place, stacked=False) + _FRAME for place in places) > room
    parts: list[list[int]] = [[]]
    left = room
    for place in places:
        needed = _width(table, place, stacked) + _FRAME
        if parts[-1] and needed > left:
            parts.append([])
            left = room
        parts[-1].append(place)
        left -= needed
    return [
        _grid(
            table,
            [*range(words), *part],
            stacked=stacked,
            title=table.title if part is parts[0] else "",
            note=table.note if part is parts[-1] else "",
        )
        for part in parts
    ]


def _width(table: Table, place: int, stacked: bool) -> int:
    """What a column needs; its head may be broken between words."""
    head = max((len(word) for word in table.header[place].split()), default=0)
    return max(head, *(len(line) for row in table.rows for line in _lines(row[place], stacked)), 0)


def _words_width(table: Table, place: int) -> int:
    """What a column of words takes at least: names are not broken."""
    longest = max((len(word) for row in table.rows for word in row[place].text.split()), default=0)
    return min(_width(table, place, stacked=False), max(_WORDS, longest))


def _lines(cell: Cell, stacked: bool) -> list[str]:
    return [cell.text, cell.interval] if stacked and cell.interval else [str(cell)]


def _grid(table: Table, places: Sequence[int], *, stacked: bool, title: str, note: str) -> Grid:
    grid = Grid(
        title=escape(title) or None,
        caption=escape(plain(note)) or None,
        header_style="bold",
        title_justify="left",
        caption_justify="left",
    )
    for place in places:
        is_number = place >= len(table.header) - table.numbers
        if is_number:
            needed = _width(table, place, stacked)
            grid.add_column(escape(plain(table.header[place])), justify="right", min_width=needed, overflow="fold")
        else:
            least = _words_width(table, place) if table.numbers else None
            grid.add_column(escape(plain(table.header[place])), min_width=least, overflow="fold")
    for row in table.rows:
        grid.add_row(*(escape(plain("\n".join(_lines(row[place], stacked)))) for place in places))
    return grid
