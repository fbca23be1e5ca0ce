"""The page, the Markdown and the figures: whole, safe, and the same for the same report."""

import html
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from pack_fakes import judgment, labelled, pack
from report_fakes import EVIL, report_of

from eval.evaluation.evaluate import Judged, evaluate
from eval.report import figures, markdown, page, palette, tables
from eval.report.schema import Figure, Report
from eval.report.table import ABSENT, figure, share
from eval.report.write import file_name, write_report

FIGURES = {"scaling", "reliability", "roc", "risk-coverage", "histogram", "budget"}


@pytest.fixture(scope="module")
def report() -> Report:
    cases = pack([["A", "B", "A", "C"], ["A", "B", None, "B"], ["C", "B", "A", "A"]] * 2, generators=("x", EVIL))
    return report_of([*cases, *(labelled(9, trace, "B", generator=EVIL, text=EVIL) for trace in range(2))])


@pytest.fixture(scope="module")
def written(report: Report, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    write_report(folder, report)
    return folder


class Reader(HTMLParser):
    """Tags, attributes and the texts of table cells of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.cells: list[str] = []
        self._in_cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in ("td", "th"):
            self.cells.append("")
            self._in_cell = True

    def handle_endtag(self, tag: str) -> None:
        self._in_cell = self._in_cell and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self._in_cell:
            self.cells[-1] += data


@pytest.fixture(scope="module")
def reader(written: Path) -> Reader:
    return Reader((written / "report.html").read_text("utf-8"))


def test_nothing_comes_from_elsewhere(reader: Reader) -> None:
    tags = {tag for tag, _ in reader.tags}
    assert not tags & {"script", "link", "img", "iframe", "object", "embed", "base", "form", "image", "video", "audio"}
    for tag, attributes in reader.tags:
        for name, value in attributes.items():
            assert not re.search(r"https?:|//", value or ""), (tag, name, value)
            assert not name.startswith("on"), (tag, name)
            assert name not in ("src", "srcset"), (tag, name)
    assert "url(http" not in reader.text
    policy = [a["content"] for tag, a in reader.tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]


def test_foreign_text_is_shown_and_nothing_else(written: Path) -> None:
    text = (written / "report.html").read_text("utf-8")
    assert "<script" not in text
    assert "<img" not in text
    assert "\x1b" not in text
    assert "\u202e" not in text  # would write what is ours behind it from the right to the left
    assert html.escape("<script>alert(1)</script>") in text
    assert "&amp;amp;" in text  # what was escaped already is shown as it was


def test_every_figure_is_on_the_page_and_a_file(written: Path, reader: Reader) -> None:
    assert {file.name for file in (written / "figures").iterdir()} == {f"pack.{name}.svg" for name in FIGURES}
    ids = [attributes["id"] for _, attributes in reader.tags if "id" in attributes]
    assert {f"pack-1-{name}" for name in FIGURES} <= set(ids)
    assert len(ids) == len(set(ids)), "ids are unique on a page"
    assert sum(tag == "svg" for tag, _ in reader.tags) == len(FIGURES)
    references = re.findall(r'(?:url\(#|href="#)([^)"]+)', reader.text)
    assert references
    assert set(references) <= set(ids)
    for file in (written / "figures").iterdir():
        drawing = file.read_text("utf-8")
        assert ET.fromstring(drawing).tag == "{http://www.w3.org/2000/svg}svg"
        assert "var(--" not in drawing
        assert not any(role.stand_in in drawing for role in palette.ROLES)


def test_figures_on_the_page_follow_its_colours(reader: Reader) -> None:
    assert not any(role.stand_in in reader.text for role in palette.ROLES)
    assert "fill: var(--" in reader.text
    assert "stroke: var(--series-1)" in reader.text
    assert "prefers-color-scheme: dark" in reader.text


def test_the_page_says_what_the_json_holds(report: Report, reader: Reader) -> None:
    """Every value with its interval stands in a cell, and a cell says nothing else."""
    read = Report.model_validate_json(report.model_dump_json())
    cells = {" ".join(cell.split()) for cell in reader.cells}
    shown: list[Figure] = []
    for of in read.packs:
        shown += [one for row in of.votes for one in (row.mean, row.majority, row.any_right)]
        shown += [one for row in of.verification for one in row.figures.values()]
        shown += [one for row in of.selection for one in row.accuracy.values()]
        shown += [row.difference for pair in of.paired for row in pair.rows]
        assert of.agreement is not None
        shown += [of.agreement.kappa, of.agreement.spread, *(one.label_mass for one in of.conduct)]
        shown += [point.accuracy for budget in of.budgets for point in budget.points]
    assert len(shown) > 100
    assert {str(figure(one)) for one in shown} <= cells
    shares = [
        of.agreement.verdicts,
        *(one for of in read.packs for by in of.conduct for one in (by.empty, by.well_formed)),
    ]
    assert {str(share(one)) for one in shares} <= cells
    expected = [
        " ".join(page.plain(text).split())
        for table in [tables.overview(read), *tables.of_pack(read.packs[0])]
        if table is not None
        for text in (*table.header, *(str(cell) for row in table.rows for cell in row))
    ]
    assert [" ".join(cell.split()) for cell in reader.cells] == expected


def test_the_markdown_has_the_same_tables(report: Report, written: Path) -> None:
    text = (written / "report.md").read_text("utf-8")
    for table in [tables.overview(report), *tables.of_pack(report.packs[0])]:
        assert table is not None
        lines = markdown.table(table)
        assert "\n".join(lines) in text
        bars = {len(re.findall(r"(?<!\\)\|", line)) for line in lines if line.startswith("|")}
        assert bars == {len(table.header) + 1}
    assert not re.search(r"(?<!\\)<", text)
    assert "\x1b" not in text
    for link in re.findall(r"\]\((\S+\.svg)\)", text):
        assert (written / link).is_file()


def test_examples_open_with_the_keyboard_and_say_what_they_are(reader: Reader, report: Report) -> None:
    tags = [tag for tag, _ in reader.tags]
    assert tags.count("details") == tags.count("summary") == len(report.packs[0].examples) > 5
    headings = [tag for tag in tags if re.fullmatch("h[1-6]", tag)]
    assert headings[0] == "h1"
    scrolled = [attributes for _, attributes in reader.tags if attributes.get("class") == "scroll"]
    assert scrolled
    assert all(a["tabindex"] == "0" and a["role"] == "region" and a["aria-labelledby"] for a in scrolled)


def test_the_same_report_gives_the_same_bytes(report: Report, written: Path, tmp_path: Path) -> None:
    write_report(tmp_path, Report.model_validate_json(report.model_dump_json()))
    files = [file.relative_to(written) for file in written.rglob("*") if file.is_file()]
    assert len(files) == 3 + len(FIGURES)
    for file in files:
        assert (tmp_path / file).read_bytes() == (written / file).read_bytes(), file


def test_a_pack_without_a_judge_is_reported_too(tmp_path: Path) -> None:
    write_report(tmp_path, Report(judge=None, packs=[evaluate("two words/../x", pack([["A", "B"]] * 3))]))
    text = (tmp_path / "report.html").read_text("utf-8")
    assert "Votes without a judge" in text
    assert "Examples" not in text
    assert {file.name for file in (tmp_path / "figures").iterdir()} >= {"two_words_.._x.scaling.svg"}
    assert file_name("a b/c") == "a_b_c"


def test_a_report_with_nothing_defined_can_be_drawn(tmp_path: Path) -> None:
    cases = pack([[None], [None]])
    judged = [judgment(one, None) for one in cases]
    found = evaluate("pack", cases, [Judged("judge", 0, judged)])
    assert set(figures.figures(found)) <= FIGURES
    write_report(tmp_path, Report(judge=None, packs=[found]))
    assert ABSENT in (tmp_path / "report.md").read_text("utf-8")


def test_an_unfinished_run_says_so_before_its_figures(tmp_path: Path, report: Report) -> None:
    cases = pack([["A", "B"]] * 3)
    judged = [judgment(one, 0.9 if one.label == 1 else 0.1) for one in cases]
    found = Report(judge=None, packs=[evaluate("pack", cases, [Judged("judge", 0, judged[:5])])])
    said = "This run is unfinished: 5 of 6 traces judged or tried."
    write_report(tmp_path, found)
    for name in ("report.html", "report.md"):
        text = (tmp_path / name).read_text("utf-8")
        assert 0 < text.index(said) < text.index("Selection: strategies by generators")
    noted = [one.title for one in tables.of_pack(found.packs[0]) if "on 2 of 3 questions" in one.note]
    assert noted[:2] == ["Votes without a judge", "Selection by number of traces"]
    assert any("Budget" in title for title in noted)
    assert "Unfinished: on 2 of 3 questions" in tables.overview(found).note
    for whole in (report, Report(judge=None, packs=[evaluate("pack", cases)])):
        assert tables.unfinished(whole) == ""
        assert not [one for one in tables.of_pack(whole.packs[0]) if "nfinished" in one.note]


def test_any_right_by_answers_is_told_from_that_by_labels() -> None:
    """One value stands above the tables and another among the votes: the note says why."""
    cases = pack([["B", "B"], ["A", "B"]])
    odd = [replace(cases[0], label=1), *cases[1:]]
    for one, differ in ((odd, True), (cases, False)):
        found = Report(judge=None, packs=[evaluate("pack", one)])
        (row,) = [row for row in found.packs[0].selection if row.strategy == "any right"]
        assert (row.accuracy[2].value != found.packs[0].votes[0].any_right.value) == differ
        shown = [tables.overview(found), *tables.selection(found.packs[0])]
        assert all(("Any right goes by answers here" in table.note) == differ for table in shown)


def test_who_reads_a_report_while_it_is_made_again_reads_the_whole_of_the_old_one(
    tmp_path: Path, report: Report
) -> None:
    write_report(tmp_path, report)
    files = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    before = [path.read_bytes() for path in files]
    readers = [path.open("rb") for path in files]
    write_report(tmp_path, report_of(pack([["A", "B"], ["B", "A"]]), "pack"))
    assert [reader.read() for reader in readers] == before
    for reader in readers:
        reader.close()
    assert (tmp_path / "report.json").read_bytes() not in before
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == files  # nothing is left over
