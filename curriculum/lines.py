"""Files of JSON lines, whole or absent."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from configs.durable import write_whole


def write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> str:
    """Write a row a line, in the order of its keys; returns the SHA-256 of the file. The same rows give the same bytes."""
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    write_whole(path, text)
    return hashlib.sha256(text.encode()).hexdigest()
