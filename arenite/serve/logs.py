"""Logs as JSON: what the server and the library tell, an object on each line of standard error."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime


class JsonLines(logging.Formatter):
    """A record as an object: its time and level, then its fields where it has some, or its text."""

    def format(self, record: logging.LogRecord) -> str:
        told = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            **getattr(record, "fields", {"message": record.getMessage()}),
        }
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        # As JSON no character of a path or a message can do anything to a terminal or a log.
        return json.dumps(told)


def log_as_json() -> None:
    """Have all records of the package and of uvicorn so, and in no other way."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    for name in ("arenite", "uvicorn"):
        logging.getLogger(name).handlers = [handler]
