"""Files that are whole or absent, whenever the process or the machine stops."""

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Wait until a file's bytes, or a folder's names, have reached the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def publish(temporary: Path, path: Path) -> None:
    """Put a finished file in place: flushed first, so that its name never stands for less than all of it."""
    sync(temporary)
    temporary.replace(path)
    sync(path.parent)
