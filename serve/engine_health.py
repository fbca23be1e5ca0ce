"""Whether a judge's engine works. One that does nothing but fail is quickly done with every case, and would draw all of them."""

import asyncio

from verifier.confidence import read_confidence
from verifier.engines.base import EngineError, Generate
from verifier.judge import Judge
from verifier.prompt import prefix_ids
from verifier.types import Status

_FAILURES_IN_A_ROW = 8  # after which the engine is asked for a token: cases that are bad by themselves fail as well
_PROBE_S = 4.0  # for that token; Ray Serve waits 5 s for an answer about health


class UnhealthyError(RuntimeError):
    """The engine fails whatever it is given."""


class EngineHealth:
    """Doubts an engine after several failed cases in a row, and then asks it for a token."""

    def __init__(self, judge: Judge) -> None:
        """Nothing is asked yet."""
        self._judge = judge
        self._failures = 0

    def saw(self, status: Status) -> None:
        """A case ended like this."""
        self._failures = self._failures + 1 if status is Status.ENGINE_FAILED else 0

    async def check(self) -> None:
        """Return at once while there is no doubt, and within seconds if there is.

        Raises:
            UnhealthyError: cases failed too often in a row, and the engine fails at a text of our own, too.
        """
        if self._failures < _FAILURES_IN_A_ROW:
            return
        try:
            async with asyncio.timeout(_PROBE_S):
                await self._write_a_token()
        except TimeoutError:  # no place for it: others are at work
            return
        except EngineError as error:
            raise UnhealthyError(f"the engine failed {self._failures} times in a row: {error}") from error
        self._failures = 0

    async def _write_a_token(self) -> None:
        """Have the engine continue the text that every prompt begins with; raises EngineError."""
        judge = self._judge
        begun = prefix_ids(judge.prompt, judge.engine.tokenizer)
        async with judge.engine.open() as [sequence]:
            written = await sequence.generate(Generate(begun, max_tokens=1, watch=judge.labels.watch))
            read_confidence(written.watched[0], judge.labels)
