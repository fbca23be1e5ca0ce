"""How the log of a service looks: lines for people, or a JSON object a line for programs."""

import json
import logging
from datetime import UTC, datetime
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


def log_config(form: Literal["text", "json"]) -> dict[str, Any]:
    """Settings for `logging.config.dictConfig`: everything goes to standard error in one form."""
    formatters: dict[str, dict[str, Any]] = {
        "text": {"()": Lines, "format": "%(levelname)-8s %(message)s"},
        "json": {"()": JsonLines},
    }
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "filters": {"request": {"()": NamedRequest}},
        "formatters": {form: formatters[form]},
        "handlers": {
            "stderr": {"class": "logging.StreamHandler", "formatter": form, "filters": ["request"]},
        },
        "loggers": {name: {"level": "INFO"} for name in _OURS},
        "root": {"level": "WARNING", "handlers": ["stderr"]},
    }
