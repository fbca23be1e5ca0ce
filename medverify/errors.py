"""What goes wrong between a client and the service. All are `RemoteJudgeError`s; none is ever turned into a number."""

from verifier.service import (
    BusyError,
    NotJudgedError,
    OutOfTimeError,
    RefusedError,
    RemoteJudgeError,
    UnauthorisedError,
    UnreachableError,
    WrongAnswerError,
)

__all__ = [
    "BusyError",
    "NotJudgedError",
    "OutOfTimeError",
    "RefusedError",
    "RemoteJudgeError",
    "UnauthorisedError",
    "UnreachableError",
    "WrongAnswerError",
]
