"""Faults of files in words for people, without the number that the operating system gives them."""


def reason(error: Exception) -> str:
    """What went wrong, in one line: "no such file or directory" and not "[Errno 2] …"; the file is for the caller to name."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    line = "; ".join(part.strip() for part in text.splitlines() if part.strip()).rstrip(".: ;")
    return line[:1].lower() + line[1:] if line[1:2].islower() else line or type(error).__name__


def with_file(error: Exception) -> str:
    """The same with the file that the operating system names; anything else as it stands."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {reason(error)}"
    return str(error)
