"""The folder of a run: `attacks.jsonl` says what is judged, `judgments.jsonl` how, `report.json` and `.md` what came of it."""

import json
from collections.abc import Sequence
from pathlib import Path

from configs.appended import ResumeError
from configs.durable import write_whole
from eval.attack.attack import Attack
from eval.attack.markdown import markdown
from eval.attack.report import AttackReport


def prepare(folder: Path, attacks: Sequence[Attack]) -> Path:
    """Make the folder, or see that it is of this run; returns where judgments belong.

    Raises:
        ResumeError: it holds other attacks: another seed, pack, selection or release.
        OSError: it cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path, content = folder / "attacks.jsonl", "".join(map(_line, attacks))
    if path.exists():
        if path.read_text(encoding="utf-8") != content:
            raise ResumeError(
                f"{path} holds other attacks than these. Name another folder with -o, or move this one away."
            )
    else:
        write_whole(path, content)
    return folder / "judgments.jsonl"


def write_report(folder: Path, report: AttackReport) -> None:
    """Write the report for programs and for people."""
    write_whole(folder / "report.json", report.model_dump_json(indent=2) + "\n")
    write_whole(folder / "report.md", markdown(report))


def _line(attack: Attack) -> str:
    """All that tells one attack from another. Line ends of the text are escaped by JSON."""
    poison = attack.poison.model_dump(include={"id", "title", "text"}) if attack.poison else None
    base = attack.base.labelled
    record = {
        "id": attack.id,
        "family": attack.family,
        "variant": attack.variant,
        "base": base.case.id,
        "question_id": base.question_id,
        "expected": attack.expected,
        "question": base.case.question.model_dump(exclude_none=True),
        "trace": attack.trace,
        "poison": poison,
    }
    return json.dumps(record, ensure_ascii=True) + "\n"
