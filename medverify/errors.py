"""What goes wrong between a client and the service. All are `RemoteJudgeError`s; none is ever turned into a number."""

from verifier.service import (
    BusyError,
    OutOfTimeError,
    RefusedError,
    RemoteJudgeError,
    UnauthorisedError,
    UnreachableError,
    WrongAnswerError,
)

__all__ = [
    "BusyError",
    "OutOfTimeError",
    "RefusedError",
    "RemoteJudgeError",
    "UnauthorisedError",
    "UnreachableError",
    "WrongAnswerError",
]
