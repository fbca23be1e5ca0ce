"""From logits to a token: pure functions."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from verifier.engines.sampling import nucleus, sample

logits = st.lists(st.floats(-20, 20, width=32), min_size=1, max_size=30).map(torch.tensor)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@given(logits, st.floats(0.1, 5), st.floats(0.01, 1), st.integers(0, 99))
def test_the_log_probability_is_that_of_the_draw_within_the_nucleus(
    logits_V: Tensor, temperature: float, top_p: float, seed: int
) -> None:
    token, logprob = sample(logits_V, temperature, top_p, seeded(seed))
    probs_V = torch.softmax(logits_V / temperature, 0)
    kept_V = nucleus(probs_V, top_p)
    assert kept_V[token]
    assert logprob == pytest.approx(float((probs_V[token] / probs_V[kept_V].sum()).log()), abs=1e-5)
    assert sample(logits_V, temperature, top_p, seeded(seed)) == (token, logprob)


@given(logits, st.floats(0.01, 0.999))
def test_a_nucleus_is_the_smallest_set_that_reaches_the_mass(logits_V: Tensor, top_p: float) -> None:
    probs_V = torch.softmax(logits_V, 0)
    kept_V = probs_V * nucleus(probs_V, top_p)
    inside = kept_V > 0
    assert torch.equal(kept_V[inside], probs_V[inside])
    assert float(kept_V.sum()) >= top_p - 1e-5
    assert float(kept_V.sum() - kept_V[inside].min()) < top_p + 1e-5  # without its least likely token it falls short
    if not inside.all():
        assert kept_V[inside].min() >= probs_V[~inside].max()


def test_of_equals_the_first_are_kept() -> None:
    assert nucleus(torch.tensor([0.25, 0.25, 0.25, 0.25]), 0.5).tolist() == [True, True, False, False]


def test_draws_follow_the_probabilities() -> None:
    logits_V, random = torch.tensor([0.6, 0.3, 0.1]).log(), seeded(1)
    drawn = torch.tensor([sample(logits_V, 1.0, 1.0, random)[0] for _ in range(3000)]).bincount(minlength=3) / 3000
    assert drawn.tolist() == pytest.approx([0.6, 0.3, 0.1], abs=0.04)
    cut = torch.tensor([sample(logits_V, 1.0, 0.7, random)[0] for _ in range(3000)]).bincount(minlength=3) / 3000
    assert cut.tolist() == pytest.approx([2 / 3, 1 / 3, 0.0], abs=0.04)
    cold = torch.tensor([sample(logits_V, 0.1, 1.0, random)[0] for _ in range(300)])
    assert cold.eq(0).float().mean() > 0.95
