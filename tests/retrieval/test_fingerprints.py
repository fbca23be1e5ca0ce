from hypothesis import given
from hypothesis import strategies as st

from retrieval.fingerprints import Fingerprints, fingerprint


@given(st.lists(st.integers(1, 2**64 - 1)))
def test_it_is_a_set(values: list[int]) -> None:
    table, model = Fingerprints(), set[int]()
    for value in values:
        assert (value in table) == (value in model)
        assert table.add(value) == (value not in model)
        model.add(value)
    assert len(table) == len(model)


def test_it_stays_a_set_as_it_grows_and_where_slots_collide() -> None:
    table = Fingerprints()
    values = [number << 40 | 1023 for number in range(1, 2000)]  # all want the last slot of the first table
    assert all(table.add(value) for value in values)
    assert not any(table.add(value) for value in values)
    assert all(value in table for value in values)
    assert 1 not in table
    assert len(table) == len(values)


def test_memory_a_passage() -> None:
    table = Fingerprints()
    for number in range(100_000):
        table.add(fingerprint(b"%d" % number))
    assert len(table) == 100_000
    assert table.nbytes <= 22 * len(table)


def test_a_fingerprint_is_the_same_everywhere() -> None:
    assert fingerprint(b"aspirin") == 0xCBF8FBBAE42699B9
