from hypothesis import given
from hypothesis import strategies as st

from serve.judgment_ids import LENGTH, JudgmentIds, is_judgment_id


@given(st.lists(st.floats(min_value=-1e9, max_value=1e11, allow_nan=False), min_size=1, max_size=30))
def test_ids_grow_whatever_the_clock_does(times: list[float]) -> None:
    clock = iter(times)
    ids = JudgmentIds(lambda: next(clock))
    given = [ids.next() for _ in times]
    assert sorted(given) == given
    assert len(set(given)) == len(given)
    assert all(is_judgment_id(id) and len(id) == LENGTH for id in given)


def test_another_process_goes_on_behind_the_last_id() -> None:
    last = JudgmentIds(lambda: 2e9).next()  # made while the clock was ahead
    following = JudgmentIds(lambda: 1e9, last)
    assert last < following.next() < following.next()


def test_ids_of_two_processes_differ() -> None:
    assert JudgmentIds(lambda: 1e9).next() != JudgmentIds(lambda: 1e9).next()


def test_an_id_begins_with_its_time() -> None:
    """As the ULID specification has it: 1469918176385 ms is 01ARYZ6S41."""
    assert JudgmentIds(lambda: 1469918176.385).next().startswith("01ARYZ6S41")


def test_what_is_no_id() -> None:
    valid = JudgmentIds(lambda: 1e9).next()
    for text in (
        "",
        valid[:-1],
        valid + "0",
        valid.lower(),
        "8" + valid[1:],
        valid[:-1] + "U",
        valid + "\n",
        "../" + valid[3:],
    ):
        assert not is_judgment_id(text)
