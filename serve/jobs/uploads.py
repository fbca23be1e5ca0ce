"""Reading the cases of a job from a request: one JSON value, or JSON lines of any length."""

from collections.abc import Iterator
from json import JSONDecodeError
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from configs import strict_json
from serve.errors import MOST_FAULTS, ServiceError, expected_by, unfit, unfit_json
from serve.jobs.files import Draft
from serve.jobs.schemas import JobRequest, numbered
from verifier.types import Case, field_as_written

LINES = "application/x-ndjson"


async def read_json(request: Request, limit: int) -> JobRequest:
    """The whole body as one JSON value.

    Raises:
        ServiceError: 413, it has more than `limit` bytes; 400, it is no text.
        RequestValidationError: it is not what is expected.
    """
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > limit:
            detail = f"one JSON value may have {limit} bytes; send more as {LINES}, a case a line"
            raise ServiceError(413, "body-too-large", "The request is too large", detail)
    try:
        data = strict_json.parse_unique(bytes(body))
    except (strict_json.RepeatedKeyError, JSONDecodeError) as error:
        raise unfit([unfit_json(error)]) from error
    except ValueError as error:
        detail = "the body is no text in UTF-8, or is nested too deeply"
        raise ServiceError(400, "http", "The body cannot be read", detail) from error
    try:
        return JobRequest.model_validate(data)
    except ValidationError as error:
        faults = [{**fault, "loc": ("body", *fault["loc"])} for fault in error.errors(include_url=False)]
        raise RequestValidationError(faults, body=data) from error


def write_lines(draft: Draft, max_cases: int, max_line_bytes: int) -> int:
    """Check the uploaded lines of a draft, make them its cases, and give their number.

    Raises:
        ServiceError: 413, there are too many, or a line is too long; 422, some are no cases, or there are none.
        OSError: they cannot be written.
    """
    faults = list[dict[str, str]]()
    total = draft.write_cases(_cases(draft.upload, max_cases, max_line_bytes, faults))
    if faults:
        raise unfit(faults)
    if total == 0:
        raise unfit([{"field": "body", "expected": "a case a line"}])
    return total


def too_many(max_cases: int) -> ServiceError:
    """413 for a job with too many cases."""
    return ServiceError(413, "batch-too-large", "The job is too large", f"one job may have {max_cases} cases")


def _cases(upload: Path, max_cases: int, max_line_bytes: int, faults: list[dict[str, str]]) -> Iterator[Case]:
    place = 0
    with upload.open("rb") as file:
        lines = iter(lambda: file.readline(max_line_bytes + 1), b"")  # an upload of one line must not fill the memory
        for number, line in enumerate(lines, start=1):
            if len(line) > max_line_bytes:
                detail = f"line {number} exceeds {max_line_bytes} bytes, which a case has to fit into"
                raise ServiceError(413, "body-too-large", "The request is too large", detail)
            if not line.strip():
                continue
            if place == max_cases:
                raise too_many(max_cases)
            case = _case(line, number, place, faults)
            place += 1
            if case is not None:
                yield case
            if len(faults) >= MOST_FAULTS:
                return


def _case(line: bytes, number: int, place: int, faults: list[dict[str, str]]) -> Case | None:
    data: Any = None
    try:
        data = strict_json.parse_unique(line)
        return Case.model_validate(numbered(data, place))
    except ValidationError as error:
        for fault in error.errors(include_url=False, include_input=False):
            field = field_as_written(fault["loc"], data)
            faults.append({"field": f"line {number}" + (f": {field}" if field else ""), "expected": expected_by(fault)})
    except ValueError as error:
        faults.append(unfit_json(error, f"line {number}"))
    return None
