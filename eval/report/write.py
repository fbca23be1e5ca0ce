"""The files of a report: `report.json`, and what is drawn from it. Each is whole or what it was before, whenever it is read."""

import re
from pathlib import Path

from configs.durable import write_whole
from eval.report import figures, markdown, page, palette
from eval.report.schema import Report


def write_report(folder: Path, report: Report) -> list[Path]:
    """Write `report.json`, `report.html`, `report.md` and `figures/*.svg`; the same report gives the same bytes.

    Returns:
        What was written, the page first.
    """
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    drawn = {pack.name: figures.figures(pack) for pack in report.packs}
    links: dict[str, dict[str, str]] = {}
    svgs: dict[Path, str] = {}
    for pack, found in drawn.items():
        files = {name: f"figures/{file_name(pack)}.{name}.svg" for name in found}
        links[pack] = {files[name]: words for name, (words, _) in found.items()}
        svgs |= {folder / files[name]: palette.for_file(svg) for name, (_, svg) in found.items()}
    texts = {
        folder / "report.html": page.render(report, drawn),
        folder / "report.md": markdown.render(report, links),
        folder / "report.json": report.model_dump_json(indent=1) + "\n",
        **svgs,
    }
    for path, text in texts.items():
        write_whole(path, text)
    return list(texts)


def file_name(pack: str) -> str:
    """A pack's name as a part of a file's name and of a link."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", pack)
