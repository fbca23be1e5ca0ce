"""Reading cases from files: JSON or JSONL, every fault named by line and field, good lines kept."""

import gzip
import io
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Literal

from pydantic import ValidationError

from configs import strict_json
from configs.reasons import reason
from verifier.types import Case, field_as_written

EXPECTED = '{"id": "…", "question": "…", "options": {"A": "…"} (optional), "trace": "…" or ["step", …]}'


_MOST_UNPACKED = 2**30  # about 200,000 cases; a few megabytes of gzip can unpack to more than there is memory
_PIECE = 2**20


class _TooLargeError(Exception):
    pass


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that is not a case."""

    line: int  # counted from 1
    problems: tuple[str, ...]  # field and what was expected
    unit: Literal["line", "element", "row"] = "line"  # what `line` counts: a JSON array has elements, a table rows

    def __str__(self) -> str:
        return f"{self.unit} {self.line}: " + "; ".join(self.problems)


def read_cases(file: Path | IO[bytes]) -> Iterator[Case | BadLine]:
    """Read `.jsonl`, `.json` (one case or an array), either gzipped, in order.

    Ids must be unique: a second line with the same id is a BadLine.
    """
    seen: dict[str, int] = {}
    try:
        data = _read(file)
    except _TooLargeError as error:
        yield BadLine(1, (str(error),))
        return
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        yield BadLine(1, (f"a damaged gzip file: {reason(error)}",))
        return
    elements = _array(data)
    unit: Literal["line", "element"] = "line" if elements is None else "element"
    for line, record in _records(data) if elements is None else enumerate(elements, start=1):
        case = record if isinstance(record, BadLine) else _case(line, record)
        if isinstance(case, Case):
            first = seen.setdefault(case.id, line)
            if first != line:
                case = BadLine(line, (f"id: {case.id!r} was used in {unit} {first} already; ids must be unique",))
        yield replace(case, unit=unit) if isinstance(case, BadLine) else case


def _read(file: Path | IO[bytes]) -> bytes:
    data = file.read_bytes() if isinstance(file, Path) else file.read()
    data = _unpacked(data) if data[:2] == b"\x1f\x8b" else data
    return data.removeprefix(b"\xef\xbb\xbf")


def _unpacked(data: bytes) -> bytes:
    unpacked = bytearray()
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        while piece := file.read(_PIECE):
            unpacked += piece
            if len(unpacked) > _MOST_UNPACKED:
                raise _TooLargeError(f"unpacks to more than {_MOST_UNPACKED} bytes; split it into several files")
    return bytes(unpacked)


def _array(data: bytes) -> list[Any] | None:
    """The elements, if the file is one JSON array."""
    if data.lstrip()[:1] != b"[":
        return None
    try:
        return list(strict_json.parse(data))
    except ValueError:
        return None


def _records(data: bytes) -> Iterator[tuple[int, Any]]:
    lines = data.split(b"\n")
    if data.lstrip()[:1] == b"[" and not any(isinstance(record, dict) for _, record in _lines(lines)):
        yield 1, BadLine(1, ("not a JSON array: it is cut off or malformed",))
        return  # else it is JSONL whose first line is not a case
    if len([line for line in lines if line.strip()]) > 1 and data.lstrip()[:1] == b"{":
        try:  # one case, laid out over several lines
            yield 1, strict_json.parse(data)
            return
        except ValueError:
            pass  # then it is JSONL, and each line speaks for itself
    yield from _lines(lines)


def _lines(lines: Iterable[bytes]) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield number, strict_json.parse(line)
        except ValueError as error:
            yield number, BadLine(number, (f"not JSON ({error}); expected {EXPECTED}",))


def _case(line: int, record: Any) -> Case | BadLine:
    if not isinstance(record, dict):
        return BadLine(line, (f"expected an object {EXPECTED}, found {type(record).__name__}",))
    try:
        return Case.model_validate(record)
    except ValidationError as error:
        problems = []
        for item in error.errors():
            field = field_as_written(item["loc"], record) or "line"
            problems.append(f"{field}: {item['msg']}")
        return BadLine(line, tuple(problems))
