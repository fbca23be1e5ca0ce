from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.candidate_pass import borders, power_of_two
from retrieval.row_table import RowTable

ROWS = np.arange(40, dtype=np.float32).reshape(20, 2)


@given(
    cuts=st.sets(st.integers(1, 19)),
    limit=st.integers(1, 25),
    part=st.tuples(st.integers(0, 20), st.integers(0, 20)).map(sorted),
    asked=st.lists(st.integers(0, 19)),
)
def test_many_shards_are_one_table(cuts: set[int], limit: int, part: list[int], asked: list[int]) -> None:
    places = [0, *sorted(cuts), 20]
    table = RowTable([ROWS[start:stop].astype([np.float32, np.float16][start % 2]) for start, stop in pairwise(places)])
    assert len(table) == 20
    pieces = [table.shards[number][span] for number, span in table.spans(part[0], part[1], limit)]
    assert all(0 < len(piece) <= limit for piece in pieces)
    np.testing.assert_array_equal(np.concatenate([ROWS[:0], *pieces]), ROWS[slice(*part)])
    wide = table.wide(np.array(asked, dtype=np.int64))
    assert wide.dtype == np.float64
    np.testing.assert_array_equal(wide, ROWS[asked])


@pytest.mark.parametrize(
    ("norms", "longest"), [(None, 5.0), ([9.0, None], 9.0), ([1.0, None], 5.0), ([np.nan, 1], np.nan)]
)
def test_the_longest_row_is_read_only_where_nobody_knows_it(norms: list[float | None] | None, longest: float) -> None:
    shards = [np.array([[0, 2]], dtype=np.float32), np.array([[3, 4], [1, 0]], dtype=np.float32)]
    np.testing.assert_equal(RowTable(shards, norms).longest, longest)


@given(st.integers(1, 100), st.integers(1, 9))
def test_ranges_for_devices_are_even_and_whole(rows: int, parts: int) -> None:
    found = borders(rows, parts)
    assert [start for start, _ in found] == [0, *(stop for _, stop in found)][:-1]
    sizes = [stop - start for start, stop in found]
    assert (sum(sizes), len(sizes)) == (rows, min(rows, parts))
    assert max(sizes) - min(sizes) <= 1


def test_lengths_are_brought_below_one_by_powers_of_two() -> None:
    lengths = np.array([0.0, 1e-30, 0.5, 1.0, 3.0, 1e30])
    factors = power_of_two(lengths)
    assert set(np.frexp(factors)[0]) == {0.5}
    scaled = lengths * factors
    assert factors[0] == 1
    assert ((scaled[1:] >= 0.5) & (scaled[1:] < 1)).all()
