"""The report as one HTML file: no outside resources, no script, light and dark, readable on a phone.

Questions, traces and passages are foreign text. The template escapes all of it by itself (autoescape), nothing of it is ever
put into an attribute, and the page's own policy forbids scripts and connections even if something slipped through.
"""

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

from eval.report import palette, tables
from eval.report.schema import Example, Report
from eval.report.table import Table


@dataclass(frozen=True, slots=True)
class Drawing:
    """A figure of the page."""

    name: str
    words: str
    svg: str  # ours, drawn from numbers and names that matplotlib has escaped; the only text that is not escaped again


@dataclass(frozen=True, slots=True)
class Section:
    """What the page shows of one pack."""

    anchor: str
    title: str
    drawings: list[Drawing]
    tables: list[Table]
    examples: list[Example]


def render(report: Report, figures: Mapping[str, Mapping[str, tuple[str, str]]]) -> str:
    """The page of one evaluation.

    Args:
        report: what was found.
        figures: by pack and name: a sentence and a drawing, as `eval.report.figures` gives them.
    """
    sections = [
        Section(
            anchor=f"pack-{number}",
            title=pack.name,
            drawings=[
                Drawing(name, words, inline(svg, f"p{number}-")) for name, (words, svg) in figures[pack.name].items()
            ],
            tables=tables.of_pack(pack),
            examples=pack.examples,
        )
        for number, pack in enumerate(report.packs, start=1)
    ]
    title = f"Evaluation of {report.judge.model}" if report.judge else "Votes without a judge"
    return page(
        title,
        judge=report.judge,
        unfinished=tables.unfinished(report),
        overview=tables.overview(report),
        sections=sections,
    )


def page(title: str, **parts: object) -> str:
    """Fill the template; parts that are left out are not shown."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["plain"] = plain
    template = environment.from_string(resources.files("eval.report").joinpath("page.html.j2").read_text("utf-8"))
    blank: dict[str, object] = {"judge": None, "unfinished": "", "overview": None, "sections": [], "tables": []}
    styles = {"light": palette.variables(dark=False), "dark": palette.variables(dark=True)}
    return template.render(title=title, **(blank | styles | parts))


def inline(svg: str, prefix: str) -> str:
    """A drawing as a part of the page: in the page's colours, with ids of its own, without the head of a file."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", body)  # the page's parser knows them
    body = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{prefix}", body)
    body = re.sub(r'<svg [^>]*viewBox="([^"]*)"[^>]*>', r'<svg viewBox="\1" aria-hidden="true">', body, count=1)
    return palette.for_page(body)


def plain(text: str) -> str:
    """Foreign text without the control characters that HTML does not allow, and those that turn round what stands behind it."""
    return "".join(c for c in text if c in "\n\t" or not (unicodedata.category(c) in ("Cc", "Cs") or _turns_round(c)))


def _turns_round(character: str) -> bool:
    """Whether it embeds, overrides or isolates a direction; scripts that run from the right need none of these."""
    return unicodedata.bidirectional(character) in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
