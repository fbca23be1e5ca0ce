"""How the log of a service looks: lines for people, or a JSON object a line for programs."""

import json
import logging
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal

from serve.request_ids import request_id

#: Our rooms, and the server; other libraries say only what is wrong.
_OURS = ("serve", "verifier", "retrieval", "medverify", "uvicorn")


class NamedRequest(logging.Filter):
    """Puts the id of the request that is being worked on into every record."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.request_id = request_id()
        return True


class Lines(logging.Formatter):
    """For people: level, message, and the request that it is about."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        name = getattr(record, "request_id", None)
        return f"{text} [{name}]" if name else text


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, logger, message, request_id where there is one, and the fields of the record."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if name := getattr(record, "request_id", None):
            line["request_id"] = name
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


Form = Literal["text", "json"]
_HANDLER = "medverify"


def log_config(form: Form) -> dict[str, Any]:
    """Settings for `logging.config.dictConfig`: everything goes to standard error in one form."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "filters": {"request": {"()": NamedRequest}},
        "formatters": {form: {"()": partial(_formatter, form)}},
        "handlers": {
            "stderr": {"class": "logging.StreamHandler", "formatter": form, "filters": ["request"]},
        },
        "loggers": {name: {"level": "INFO"} for name in _OURS},
        "root": {"level": "WARNING", "handlers": ["stderr"]},
    }


def write_log(form: Form) -> None:
    """Write the same in a process whose logging is another's, such as Ray's: its handlers stay, and go on as they did."""
    handler = logging.StreamHandler()
    handler.name = _HANDLER
    handler.addFilter(NamedRequest())
    handler.setFormatter(_formatter(form))
    root = logging.getLogger()
    root.handlers[:] = [*(other for other in root.handlers if other.name != _HANDLER), handler]
    for name in _OURS:
        logging.getLogger(name).setLevel(logging.INFO)


def _formatter(form: Form) -> logging.Formatter:
    return JsonLines() if form == "json" else Lines("%(levelname)-8s %(message)s")
