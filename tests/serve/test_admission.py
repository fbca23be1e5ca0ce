import asyncio
from contextlib import ExitStack

import pytest

from serve.admission import Admission
from serve.callers import Caller
from serve.errors import ServiceError
from serve.fair_places import FairPlaces
from serve.pace import Pace

NOBODY, ONE, TWO, THREE = Caller(), Caller("one"), Caller("two"), Caller("three")
EVER = 1e9


def admission(limit: int, places: int = 4) -> tuple[Admission, FairPlaces, Pace]:
    line, pace = FairPlaces(places), Pace(5, 60)
    return Admission(limit, line, pace), line, pace


def fill(admission: Admission, stack: ExitStack, caller: Caller) -> int:
    """Have cases admitted one by one until there is a refusal; how many were."""
    for count in range(10_000):
        try:
            stack.enter_context(admission.admit(1, caller, EVER))
        except ServiceError:
            return count
    raise AssertionError("there is no limit")


def test_what_is_let_in_is_counted_until_it_is_done() -> None:
    desk, _, _ = admission(9)
    with desk.admit(2, ONE, EVER), desk.admit(1, TWO, EVER):
        assert desk.in_flight == 3
    with pytest.raises(KeyError), desk.admit(2, ONE, EVER):
        raise KeyError
    assert desk.in_flight == 0
    assert desk.refused == {}


def test_one_caller_without_a_key_may_hold_all() -> None:
    desk, _, _ = admission(100)
    with ExitStack() as stack:
        assert desk.largest(NOBODY) == fill(desk, stack, NOBODY) == 100
    assert desk.refused == {"full": 1}


def test_one_key_alone_leaves_room_for_another_and_several_share() -> None:
    desk, _, _ = admission(100)
    with ExitStack() as stack:
        assert desk.largest(ONE) == fill(desk, stack, ONE) == 75
        second = fill(desk, stack, TWO)
        assert 15 <= second <= 20  # three quarters of what was left
        assert fill(desk, stack, THREE) >= 3  # and there is always something for a third one
    assert desk.refused == {"share": 3}
    assert desk.in_flight == 0


def test_keys_that_ask_on_and_on_end_with_equal_shares() -> None:
    desk, _, _ = admission(140)
    held: dict[Caller, list[ExitStack]] = {ONE: [], TWO: []}
    for step in range(4000):
        caller = (ONE, TWO)[step % 2]
        stack = ExitStack()
        try:
            stack.enter_context(desk.admit(1, caller, EVER))
            held[caller].append(stack)
        except ServiceError:
            oldest = max(held.values(), key=len).pop(0)
            oldest.close()
    assert abs(len(held[ONE]) - len(held[TWO])) <= 2
    assert len(held[ONE]) == pytest.approx(60, abs=2)  # 3/7 each
    for stacks in held.values():
        for stack in stacks:
            stack.close()


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 512])
def test_a_small_limit_shuts_no_key_out(limit: int) -> None:
    desk, _, _ = admission(limit)
    with desk.admit(desk.largest(ONE), ONE, EVER):
        assert 1 <= desk.in_flight <= limit
    with pytest.raises(ServiceError), desk.admit(desk.largest(ONE) + 1, ONE, EVER):
        pass


async def test_the_time_to_come_back_follows_the_pace() -> None:
    desk, line, pace = admission(4, places=2)
    for _ in range(2):
        line.line_up("one", asyncio.get_running_loop().create_future())

    def told() -> str:
        with pytest.raises(ServiceError) as refused, desk.admit(2, NOBODY, EVER):
            pass
        return refused.value.headers["Retry-After"]

    with desk.admit(4, NOBODY, EVER):
        assert told() == "5"  # nothing is known yet
        pace.observe(12.0)
        assert told() == "12"  # two cases in two places
        for _ in range(200):
            pace.observe(0.01)
        assert told() == "1"
        for _ in range(200):
            pace.observe(1e6)
        assert told() == "60"


async def test_a_deadline_that_cannot_be_met_is_refused_at_once() -> None:
    desk, line, pace = admission(100, places=2)
    pace.observe(10.0)
    with desk.admit(1, NOBODY, 0.1):
        pass  # nobody waits: it can be begun
    for _ in range(2 + 6):
        line.line_up("one", asyncio.get_running_loop().create_future())
    with pytest.raises(ServiceError) as refused, desk.admit(1, ONE, 20.0):
        pass
    assert refused.value.status == 503
    assert refused.value.headers["Retry-After"] == "10"
    assert "begin in about 30 s" in refused.value.detail
    with desk.admit(1, TWO, 20.0):
        pass  # another caller's turn comes sooner


def test_no_work_is_taken_on_before_the_end() -> None:
    desk, _, _ = admission(10)
    desk.draining = True
    with pytest.raises(ServiceError) as refused, desk.admit(1, ONE, EVER):
        pass
    assert (refused.value.status, refused.value.kind) == (503, "draining")
    assert "Retry-After" in refused.value.headers
