"""Who is judged next: callers take turns, so that nobody waits behind somebody else's pile."""

import asyncio
from collections import OrderedDict

Ticket = asyncio.Future[None]


class FairPlaces:
    """A fixed number of places. Tickets that wait are called round-robin by caller, and first come, first served within one.

    Used on the event loop only.
    """

    def __init__(self, count: int) -> None:
        """Args:
        count: cases that are judged at the same time.
        """
        self.count = count
        self._free = count
        # Both in the order in which they are called: the next caller first, its oldest ticket first. The numbers are how often
        # a caller lined up with the ticket: equal cases share one.
        self._lines = OrderedDict[str, OrderedDict[Ticket, int]]()

    @property
    def taken(self) -> int:
        """Cases that have a place."""
        return self.count - self._free

    @property
    def waiting(self) -> int:
        """Tickets that wait; one of two callers with the same case counts twice."""
        return sum(map(len, self._lines.values()))

    def line_up(self, caller: str, ticket: Ticket) -> None:
        """Wait for a place, which the ticket has once its result is set; `give_back` returns it, `leave` stops waiting."""
        if self._free:
            self._free -= 1
            ticket.set_result(None)
        else:
            line = self._lines.setdefault(caller, OrderedDict())
            line[ticket] = line.get(ticket, 0) + 1

    def leave(self, caller: str, ticket: Ticket) -> None:
        """Stop waiting, once; the ticket waits on for others who lined up with it. Nothing happens to one that does not wait."""
        line = self._lines.get(caller)
        if line is not None and ticket in line:
            line[ticket] -= 1
            if not line[ticket]:
                del line[ticket]
            if not line:
                del self._lines[caller]

    def give_back(self) -> None:
        """A place is free again; the next one in turn has it."""
        while self._lines:
            caller, line = next(iter(self._lines.items()))
            ticket, _ = line.popitem(last=False)
            if line:
                self._lines.move_to_end(caller)
            else:
                del self._lines[caller]
            if not ticket.done():  # else it got its place under another caller's name, or nobody wants it any more
                ticket.set_result(None)
                return
        self._free += 1

    def ahead_of(self, caller: str) -> int:
        """At most so many cases are called before the next one of this caller's would be."""
        mine = len(self._lines.get(caller, ()))
        return sum(min(len(line), mine + 1) if name != caller else mine for name, line in self._lines.items())
