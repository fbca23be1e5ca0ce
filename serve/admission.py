"""How much work is let in: what cannot be done soon is refused at once, with the time to come back."""

from collections.abc import Iterator
from contextlib import contextmanager

from serve.errors import ServiceError


class Admission:
    """Counts cases that are admitted and not finished. Used on the event loop only."""

    def __init__(self, limit: int, retry_after_s: int) -> None:
        self._limit = limit
        self._retry_after_s = retry_after_s
        self.in_flight = 0

    @contextmanager
    def admit(self, cases: int) -> Iterator[None]:
        """Let `cases` in for as long as the block runs.

        Raises:
            ServiceError: 503 with Retry-After if they would exceed the limit.
        """
        if self.in_flight + cases > self._limit:
            raise ServiceError(
                503,
                "overloaded",
                "The service is busy",
                f"{self.in_flight} cases are in flight and {cases} more exceed the limit of {self._limit}",
                {"Retry-After": str(self._retry_after_s)},
            )
        self.in_flight += cases
        try:
            yield
        finally:
            self.in_flight -= cases
