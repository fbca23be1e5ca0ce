from collections.abc import Iterator

import pytest
from search_fakes import WordRanker


@pytest.fixture
def ranker() -> Iterator[WordRanker]:
    """Its gate is open at the end, so that nobody waits for it."""
    ranker = WordRanker()
    yield ranker
    ranker.gate.set()
