"""Files that are whole or absent, whenever the process or the machine stops."""

import os
from contextlib import suppress
from io import FileIO
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


def own_folder(path: Path) -> None:
    """Make a folder for its owner alone, and those above it that are missing. One that is there stays as it is.

    Raises:
        OSError: it cannot be made.
    """
    for missing in reversed([path, *path.parents]):
        if not missing.is_dir():
            missing.mkdir(mode=0o700, exist_ok=True)


def for_owner(path: str, flags: int) -> int:
    """Opens files that hold what others sent, for `open(…, opener=for_owner)`: nobody else on the machine may read them."""
    return os.open(path, flags, 0o600)


def write_whole(path: Path, text: str, *, private: bool = False) -> None:
    """Write a file at once: it holds all of the text, or what it held before; `private`: for its owner alone."""
    temporary = path.with_name(f".{path.name}.part")
    try:
        with open(temporary, "w", encoding="utf-8", opener=for_owner if private else None) as file:
            file.write(text)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    publish(temporary, path)


def append(file: FileIO, data: bytes, *, sync: bool = True) -> None:
    """Write all of it at the end or, where the disk lets us, nothing; with `sync`, a machine that stops loses none of it.

    Raises:
        OSError: it cannot be written, as on a full disk.
    """
    before, rest = os.fstat(file.fileno()).st_size, memoryview(data)
    try:
        while rest:
            rest = rest[file.write(rest) :]
        if sync:
            os.fsync(file.fileno())
    except OSError:
        with suppress(OSError):  # then what was written of it has to be cut off later
            file.truncate(before)
        raise
