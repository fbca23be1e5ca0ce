"""When a run over many cases gives up: the rest of the night would be lost, and all of it would have to be done again."""

from pathlib import Path

from verifier.engines.base import EngineError

_LOST_WAVES = 3  # one after another without a single result: then whoever makes them is gone


class OutageError(EngineError):
    """Nothing can be made any more; the message says what goes wrong."""


class Losses:
    """Counts waves that gave nothing, one after another."""

    def __init__(self, path: Path) -> None:
        """Args:
        path: where results are kept.
        """
        self._path = path
        self._lost = 0

    def saw(self, *, lost: bool, detail: str) -> None:
        """A wave is done and on the disk, and more are to come.

        Args:
            lost: it gave not one result, for reasons that are not its own.
            detail: what went wrong.

        Raises:
            OutageError: that was one too many.
        """
        self._lost = self._lost + 1 if lost else 0
        if self._lost == _LOST_WAVES:
            raise OutageError(
                f"{_LOST_WAVES} waves one after another gave nothing, the last: {detail}. What there is is kept in {self._path}; "
                "once it is mended, the same command goes on, with --retry-failed also over these"
            )
