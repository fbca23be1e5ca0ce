"""Judgments for people."""

import unicodedata
from collections import Counter
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from verifier.types import Case, Judgment, Search

_VERDICTS = {1: ("free of errors", "green"), 0: ("contains an error", "red"), None: ("not judged", "yellow")}
_SNIPPET = 220


def plain(text: str) -> str:
    """Text of others for a terminal: control characters, which could drive it, are left out."""
    return "".join(c for c in text if c in "\n\t" or unicodedata.category(c) != "Cc")


def panel(case: Case, judgment: Judgment) -> Panel:
    """One judgment: what was asked, what was claimed, what the judge thought, looked up and concluded."""
    words, colour = _VERDICTS[judgment.verdict]
    parts: list[RenderableType] = [_heading("Question"), Text(plain(case.question.text))]
    parts += [Text(plain(f"  {letter}. {option}")) for letter, option in (case.question.options or {}).items()]
    parts += [_heading("Reasoning under judgment"), Text(plain(case.trace.render()))]
    parts += _course(judgment)
    parts += [Text(), _conclusion(judgment, words, colour)]
    return Panel(Group(*parts), title=f"[bold]{escape(plain(case.id))}[/]", border_style=colour, expand=True)


def _course(judgment: Judgment) -> list[RenderableType]:
    """Thought, search, thought …, as it came about where that can be told, else thoughts first."""
    thoughts = judgment.reasoning.split("\n\n")
    if len(thoughts) != len(judgment.searches) + 1:
        thoughts = [judgment.reasoning, *[""] * len(judgment.searches)]
    parts = _thought(thoughts[0] or "—")
    for search, thought in zip(judgment.searches, thoughts[1:], strict=True):
        parts += [_heading(plain(f"Searched for “{search.query}”")), _passages(search), *_thought(thought)]
    return parts


def _thought(text: str) -> list[RenderableType]:
    return [_heading("The judge thought"), Text(plain(text), style="italic")] if text else []


def _heading(text: str) -> Text:
    return Text(f"\n{text}", style="bold cyan")


def _passages(search: Search) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(justify="right", style="dim")
    table.add_column()
    for passage in search.passages:
        body = Text.assemble(
            (plain(passage.title), "bold"), (f"  score {passage.score:.3f}  {plain(passage.source)}", "dim")
        )
        text = passage.text if len(passage.text) <= _SNIPPET else f"{passage.text[:_SNIPPET].rsplit(' ', 1)[0]} …"
        table.add_row(f"{passage.rank}.", Group(body, Text(plain(text))))
    return table


def _conclusion(judgment: Judgment, words: str, colour: str) -> Text:
    line = Text.assemble(("Verdict: ", "bold"), (words, f"bold {colour}"))
    if judgment.p_correct is not None:
        line.append(f"   p(1) = {judgment.p_correct:.3f}", style="bold")
        if judgment.p_calibrated is not None:
            line.append(f"   calibrated {judgment.p_calibrated:.3f}", style="bold")
        line.append(f"   label mass {judgment.label_mass:.4f}", style="dim")
    line.append(f"   status {judgment.status.value}", style="dim")
    if judgment.verdict is None:
        line.append(f" ({judgment.stop_reason.value}: {plain(judgment.detail)})", style=colour)
    tokens = judgment.usage.policy_tokens
    line.append(
        f"   {len(judgment.searches)} {'search' if len(judgment.searches) == 1 else 'searches'}, {tokens} tokens written",
        style="dim",
    )
    return line


def table(judgments: Sequence[Judgment]) -> Table:
    """Many judgments, one a line."""
    grid = Table(header_style="bold")
    calibrated = ["calibrated"] if any(judgment.p_calibrated is not None for judgment in judgments) else []
    for name in ("id", "verdict", "p(1)", *calibrated, "status", "searches", "best passage"):
        right = name in ("p(1)", "calibrated", "searches")
        grid.add_column(name, justify="right" if right else "left", overflow="fold")
    for judgment in judgments:
        words, colour = _VERDICTS[judgment.verdict]
        shown = [judgment.p_correct, *([judgment.p_calibrated] if calibrated else [])]
        probabilities = ["—" if p is None else f"{p:.3f}" for p in shown]
        best = next((search.passages[0].title for search in judgment.searches if search.passages), "—")
        status = (
            judgment.status.value if judgment.verdict is not None else f"{judgment.status.value}: {judgment.detail}"
        )
        grid.add_row(
            escape(plain(judgment.id)),
            f"[{colour}]{words}[/]",
            *probabilities,
            escape(plain(status)),
            str(len(judgment.searches)),
            escape(plain(best)),
        )
    return grid


def summary(judgments: Sequence[Judgment]) -> str:
    """Counts by outcome, in one line."""
    counts = Counter(judgment.status.value for judgment in judgments)
    right = sum(judgment.verdict == 1 for judgment in judgments)
    wrong = sum(judgment.verdict == 0 for judgment in judgments)
    failed = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()) if name != "scored")
    return f"{len(judgments)} judged or tried: {right} free of errors, {wrong} with errors" + (
        f"; {failed}" if failed else ""
    )
