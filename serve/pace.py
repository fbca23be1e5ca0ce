"""How fast cases are judged, measured on those that were: what a promise to come back later can be made from."""

_WEIGHT = 0.1  # of the newest case in the mean: the last twenty or so count


class Pace:
    """The mean seconds that a case keeps its place, and what follows from it. Used on the event loop only."""

    def __init__(self, unmeasured_s: float, longest_s: float) -> None:
        """Args:
        unmeasured_s: what is answered while no case has been judged.
        longest_s: more is never answered: the pace may change.
        """
        self._unmeasured_s = unmeasured_s
        self._longest_s = longest_s
        self._mean_s: float | None = None

    @property
    def known(self) -> bool:
        return self._mean_s is not None

    def observe(self, seconds: float) -> None:
        """A case had its place for so long."""
        self._mean_s = seconds if self._mean_s is None else self._mean_s + _WEIGHT * (seconds - self._mean_s)

    def seconds_for(self, cases: int, together: int) -> float:
        """Seconds in which so many cases end, of which `together` are under way at a time."""
        if self._mean_s is None:
            return self._unmeasured_s
        return self._mean_s * cases / max(1, together)

    def bounded(self, seconds: float) -> float:
        """A time to tell a caller, at least a second."""
        return min(max(seconds, 1.0), max(1.0, self._longest_s))
