import asyncio
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from serve.fair_places import FairPlaces, Ticket


def ticket() -> Ticket:
    return asyncio.get_running_loop().create_future()


async def called_in_order(places: FairPlaces, tickets: dict[Ticket, str], rounds: int) -> str:
    """Names in the order in which their tickets are called, one place given back at a time."""
    order = ""
    for _ in range(rounds):
        before = {one for one in tickets if one.done()}
        places.give_back()
        order += "".join(tickets[one] for one in tickets if one.done() and one not in before)
    return order


async def test_callers_take_turns_whatever_they_have_piled_up() -> None:
    places = FairPlaces(1)
    places.line_up("first", ticket())
    tickets = {ticket(): name for name in "aaaaabcc"}
    for one, name in tickets.items():
        places.line_up(name, one)
    assert places.waiting == 8
    assert [places.ahead_of(name) for name in "abcd"] == [8, 5, 6, 3]
    assert await called_in_order(places, tickets, 8) == "abcacaaa"
    places.give_back()
    assert places.taken == 0


async def test_who_leaves_is_not_called_and_takes_no_place_along() -> None:
    places = FairPlaces(1)
    held, gone, next_one = ticket(), ticket(), ticket()
    places.line_up("a", held)
    places.line_up("b", gone)
    places.line_up("b", next_one)
    places.leave("b", gone)
    places.leave("nobody", gone)
    assert held.done()
    places.give_back()
    assert (gone.done(), next_one.done()) == (False, True)
    assert places.taken == 1


async def test_who_leaves_does_not_take_the_place_of_an_equal_case_of_the_same_caller() -> None:
    places = FairPlaces(1)
    places.line_up("x", ticket())
    shared = ticket()
    places.line_up("a", shared)
    places.line_up("a", shared)
    places.leave("a", shared)
    places.give_back()
    assert shared.done()
    places.leave("a", shared)
    places.give_back()
    assert places.taken == 0


async def test_a_ticket_in_two_lines_has_one_place() -> None:
    places = FairPlaces(1)
    places.line_up("x", ticket())
    shared, other = ticket(), ticket()
    places.line_up("a", shared)
    places.line_up("b", shared)
    places.line_up("b", other)
    places.give_back()
    assert (shared.done(), other.done()) == (True, False)
    places.give_back()
    assert other.done()


@given(st.integers(1, 4), st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["ask", "ask", "back", "leave"]))))
def test_no_place_is_ever_lost_or_given_twice(count: int, steps: list[tuple[str, str]]) -> None:
    async def play() -> None:
        places = FairPlaces(count)
        holding = list[Ticket]()
        waiting = list[tuple[str, Ticket]]()
        for name, step in steps:
            if step == "ask":
                waiting.append((name, one := ticket()))
                places.line_up(name, one)
            elif step == "leave" and waiting:
                places.leave(*waiting.pop())
            elif step == "back" and holding:
                holding.pop()
                places.give_back()
            holding += [one for _, one in waiting if one.done()]
            waiting = [(who, one) for who, one in waiting if not one.done()]
            assert len(holding) == places.taken <= count
            assert places.waiting == len(waiting)
            assert not waiting or places.taken == count
            piles = Counter(who for who, _ in waiting)
            assert all(places.ahead_of(who) <= len(waiting) for who in piles)

    asyncio.run(play())
