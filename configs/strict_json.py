"""JSON as we accept it from files and servers: whatever is wrong with it is a `ValueError`."""

import json
from typing import Any


def parse(data: bytes | str) -> Any:
    """The value that `data` writes down.

    Raises:
        ValueError: not JSON, not Unicode, a number of thousands of digits, or nested too deeply to be read.
    """
    try:
        return json.loads(data)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
