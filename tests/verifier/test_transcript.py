"""The token ids of an episode and who wrote them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifier.transcript import Author, Transcript


def test_policy_tokens_need_log_probabilities() -> None:
    transcript = Transcript()
    with pytest.raises(ValueError, match="log-probability"):
        transcript.add(Author.POLICY, [1, 2], [0.0])
    assert transcript.ids == []
    assert transcript.segments == []


def test_what_is_added_is_kept_by_value() -> None:
    transcript, ids = Transcript(), [1, 2]
    transcript.add(Author.PROMPT, ids)
    ids.append(3)
    assert transcript.ids == [1, 2]
    assert transcript.segments[0].ids == (1, 2)


@given(st.lists(st.tuples(st.sampled_from(list(Author)), st.lists(st.integers(0, 300)))))
def test_ids_mask_and_counts_agree(parts: list[tuple[Author, list[int]]]) -> None:
    transcript = Transcript()
    for author, ids in parts:
        transcript.add(author, ids, [-0.5] * len(ids) if author is Author.POLICY else [])
    assert transcript.ids == [token for _, ids in parts for token in ids]
    mask = [author is Author.POLICY for author, ids in parts for _ in ids]
    assert transcript.policy_mask() == mask
    assert transcript.count(Author.POLICY) == sum(mask)
    assert transcript.count(*Author) == len(transcript.ids)
    assert transcript.count() == 0
