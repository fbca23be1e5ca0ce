import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from curriculum.objective import Surrogate, advantages, sampled_logprobs, surrogate
from verifier.engines.sampling import nucleus


def tensor(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_an_advantage_is_the_distance_from_the_mean_and_is_not_divided_by_the_spread() -> None:
    judged = torch.tensor([True, True, True, True])
    assert advantages(tensor(1, 0, 0, 1), judged).tolist() == [0.5, -0.5, -0.5, 0.5]
    assert advantages(tensor(0.25, 0, 0, 0), judged).tolist() == [0.1875, -0.0625, -0.0625, -0.0625]


def test_what_was_not_judged_is_neither_in_the_mean_nor_taught() -> None:
    judged = torch.tensor([True, False, True])
    assert advantages(tensor(1, math.nan, 0), judged).tolist() == [0.5, 0, -0.5]


@pytest.mark.parametrize("judged", [[False, False], [True, False]])
def test_a_group_without_two_judgments_teaches_nothing(judged: list[bool]) -> None:
    assert advantages(tensor(1, 0), torch.tensor(judged)).tolist() == [0, 0]


def test_drawn_words_are_renormalised_over_the_nucleus_and_others_are_not() -> None:
    logits = tensor(0.5, 0.1, 0.3, 0.06, 0.04).log().expand(1, 3, 5)
    kept = nucleus(logits.exp(), 0.79)
    found = sampled_logprobs(logits, torch.tensor([[0, 2, 4]]), kept)
    assert found[0].tolist() == pytest.approx([math.log(0.5 / 0.8), math.log(0.3 / 0.8), math.log(0.04)])
    assert sampled_logprobs(logits, torch.tensor([[0, 2, 4]]))[0, 0].item() == pytest.approx(math.log(0.5))


def loss_of(
    logprobs: Tensor, sampler: Tensor, gains: Tensor, mask: Tensor, rollouts: int, length: int = 10
) -> Surrogate:
    return surrogate(logprobs, sampler, gains, mask, clip_low=0.2, clip_high=0.3, length=length, rollouts=rollouts)


def test_the_loss_by_hand() -> None:
    """Two rollouts, the ratios 2, 1.1, 0.5 and 0.9: each side of the clip with each sign."""
    ratios = torch.tensor([[2.0, 1.1, 7.0], [0.5, 0.9, 1.5]], dtype=torch.float64)
    mask = torch.tensor([[True, True, False], [True, True, True]])
    found = loss_of(ratios.log(), torch.zeros(2, 3, dtype=torch.float64), tensor(0.5, -0.5), mask, rollouts=2)
    gain = 0.5 * (1.3 + 1.1) - 0.5 * (0.8 + 0.9 + 1.5)
    assert found.loss.item() == pytest.approx(-gain / (2 * 10))
    assert (found.tokens, found.clipped) == (5, 2)
    assert found.kl == pytest.approx(sum(1 / r - 1 + math.log(r) for r in (2, 1.1, 0.5, 0.9, 1.5)))


def test_the_length_of_a_rollout_divides_nothing() -> None:
    """Twice as many tokens weigh twice as much: no bias to short right answers or long wrong ones."""
    logprobs = torch.zeros(1, 4, dtype=torch.float64, requires_grad=True)
    short, long = torch.tensor([[True, True, False, False]]), torch.ones(1, 4, dtype=torch.bool)
    losses = [loss_of(logprobs, torch.zeros_like(logprobs), tensor(1.0), mask, 1).loss.item() for mask in (short, long)]
    assert losses == pytest.approx([-0.2, -0.4])


def test_environment_tokens_have_no_gradient() -> None:
    logprobs = torch.full((1, 3), -1.0, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[True, False, True]])
    loss_of(logprobs, logprobs.detach(), tensor(1.0), mask, 1).loss.backward()
    assert logprobs.grad is not None
    assert logprobs.grad[0].tolist() == pytest.approx([-0.1, 0, -0.1])


def test_what_stands_at_masked_positions_cannot_be_seen() -> None:
    logprobs = torch.tensor([[-1.0, -math.inf, math.nan]], dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[True, False, False]])
    found = loss_of(logprobs, torch.full_like(logprobs, -1.0).detach(), tensor(1.0), mask, 1)
    found.loss.backward()
    assert found.loss.item() == pytest.approx(-0.1)
    assert logprobs.grad is not None
    assert logprobs.grad[0, 0].item() == pytest.approx(-0.1)
    assert logprobs.grad[0, 1:].tolist() == [0, 0]


def batch(rollouts: int, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logprobs = -torch.rand(rollouts, 6, dtype=torch.float64, generator=generator) * 3
    sampler = logprobs + torch.randn(rollouts, 6, dtype=torch.float64, generator=generator) * 0.3
    gains = torch.randn(rollouts, dtype=torch.float64, generator=generator)
    return logprobs, sampler, gains, torch.rand(rollouts, 6, generator=generator) > 0.3


@given(st.integers(1, 8), st.integers(0, 1000), st.data())
def test_neither_micro_batches_nor_order_nor_padding_nor_devices_matter(
    rollouts: int, seed: int, data: st.DataObject
) -> None:
    """Parts of any sizes, in any order, padded to any length, add up to the gradient of the whole."""
    logprobs, sampler, gains, mask = batch(rollouts, seed)
    whole = logprobs.clone().requires_grad_()
    expected = loss_of(whole, sampler, gains, mask, rollouts)
    expected.loss.backward()
    order = torch.tensor(data.draw(st.permutations(range(rollouts))))
    cuts = sorted(data.draw(st.sets(st.integers(1, max(rollouts - 1, 1)), max_size=rollouts)) - {rollouts})
    parts = torch.tensor_split(order, cuts) if cuts else (order,)
    leaf = logprobs.clone().requires_grad_()
    total, clipped = 0.0, 0
    for rows in parts:
        padding = (0, data.draw(st.integers(0, 3)))
        pad = torch.nn.functional.pad
        found = loss_of(
            pad(leaf[rows], padding), pad(sampler[rows], padding), gains[rows], pad(mask[rows], padding), rollouts
        )
        found.loss.backward()
        total += found.loss.item()
        clipped += found.clipped
    assert total == pytest.approx(expected.loss.item(), abs=1e-12)
    assert clipped == expected.clipped
    assert leaf.grad is not None
    torch.testing.assert_close(leaf.grad, whole.grad)


def test_the_gradient_of_a_small_model_is_that_of_the_loss() -> None:
    """By finite differences, through the softmax over the nucleus."""
    torch.manual_seed(0)
    ids, mask = torch.tensor([[1, 0, 2], [2, 2, 1]]), torch.tensor([[True, False, True], [True, True, True]])
    hidden = torch.randn(2, 3, 4, dtype=torch.float64)
    weight = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    kept = nucleus((hidden @ weight).detach().softmax(-1), 0.9)
    kept.scatter_(-1, ids.unsqueeze(-1), True)
    sampler = sampled_logprobs((hidden @ weight).detach(), ids, kept) + 0.05

    def loss(weight: Tensor) -> Tensor:
        logprobs = sampled_logprobs(hidden @ weight, ids, kept)
        return loss_of(logprobs, sampler, tensor(0.7, -0.4), mask, 2).loss

    assert torch.autograd.gradcheck(loss, (weight,))
