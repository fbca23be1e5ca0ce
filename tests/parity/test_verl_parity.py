"""Our objective against verl 0.9.1's own functions on the same tensors. `make parity` runs it."""

import math
from importlib.util import find_spec
from typing import Any

import pytest

if not find_spec("verl"):
    pytest.skip("needs verl: `make parity` runs this", allow_module_level=True)

import numpy as np
import torch
from batches import CLIP, SHAPES, Batch, batch, ours
from torch import Tensor
from verl.trainer.ppo.core_algos import agg_loss, compute_grpo_outcome_advantage, get_policy_loss_fn
from verl.workers.config import ActorConfig

from curriculum.objective import advantages

LENGTH = 100
DR_GRPO = "seq-mean-token-sum-norm"


def verl_advantages(rewards_N: Tensor, groups: list[str], policy_NT: Tensor) -> Tensor:
    """Of each rollout, by verl: the reward stands at the last token, as its reward managers put it."""
    scores_NT = torch.zeros(policy_NT.shape, dtype=rewards_N.dtype)
    scores_NT[:, -1] = rewards_N
    spread_NT, _ = compute_grpo_outcome_advantage(
        scores_NT, policy_NT.to(rewards_N.dtype), np.array(groups, dtype=object), norm_adv_by_std_in_grpo=False
    )
    return spread_NT


def verl_loss(
    leaf_NT: Tensor, given: Batch, advantages_N: Tensor, rollouts: int, *, ranks: int = 1, dual_clip: float = 3.0
) -> tuple[Tensor, dict[str, Any]]:
    """verl's policy loss, with what its actor tells it of the whole batch."""
    config = ActorConfig(
        strategy="fsdp",
        rollout_n=given.group,
        ppo_micro_batch_size_per_gpu=1,
        clip_ratio_low=CLIP["clip_low"],
        clip_ratio_high=CLIP["clip_high"],
        clip_ratio_c=dual_clip,
        loss_agg_mode=DR_GRPO,
        loss_scale_factor=LENGTH,
    )
    config.global_batch_info.update(dp_size=ranks, global_batch_size=rollouts, loss_scale_factor=LENGTH)
    loss, metrics = get_policy_loss_fn("vanilla")(
        old_log_prob=given.sampler,
        log_prob=leaf_NT,
        advantages=advantages_N.unsqueeze(-1).expand_as(leaf_NT),
        response_mask=given.policy,
        loss_agg_mode=DR_GRPO,
        config=config,
    )
    return loss, metrics


def with_gradient(loss_of: Any, given: Batch) -> tuple[Any, Tensor]:
    leaf = given.logprobs.clone().requires_grad_()
    found = loss_of(leaf)
    (found.loss if hasattr(found, "loss") else found[0]).backward()
    assert leaf.grad is not None
    return found, leaf.grad


@pytest.mark.parametrize("shape", SHAPES)
def test_advantages_are_verls(shape: tuple[int, int, int, float]) -> None:
    given = batch(*shape)
    groups = [f"g{row // given.group}" for row in range(given.rollouts)]
    theirs = verl_advantages(given.rewards, groups, given.policy)
    torch.testing.assert_close(given.gains.unsqueeze(-1) * given.policy, theirs)


@pytest.mark.parametrize("shape", SHAPES)
def test_loss_gradient_and_clipped_fraction_are_verls(shape: tuple[int, int, int, float]) -> None:
    given = batch(*shape)
    gains = given.gains
    mine, my_grad = with_gradient(lambda leaf: ours(leaf, given, gains, LENGTH, given.rollouts), given)
    theirs, their_grad = with_gradient(lambda leaf: verl_loss(leaf, given, gains, given.rollouts), given)
    torch.testing.assert_close(mine.loss, theirs[0])
    torch.testing.assert_close(my_grad, their_grad)
    assert mine.clipped / mine.tokens == pytest.approx(theirs[1]["actor/pg_clipfrac"])
    assert theirs[1]["actor/pg_clipfrac_lower"] == 0


def test_the_clip_acts_in_what_is_compared() -> None:
    given = batch(*SHAPES[3])
    mine = ours(given.logprobs, given, given.gains, LENGTH, given.rollouts)
    assert mine.clipped > 20


@pytest.mark.parametrize("cuts", [[1, 7], [4, 4], [3, 3, 2], [1] * 8])
def test_micro_batches_add_up_on_both_sides(cuts: list[int]) -> None:
    given = batch(*SHAPES[1])
    gains = given.gains
    _, whole = with_gradient(lambda leaf: ours(leaf, given, gains, LENGTH, 8), given)
    leaf = given.logprobs.clone().requires_grad_()
    start = 0
    for size in cuts:
        rows = slice(start, start + size)
        verl_loss(leaf[rows], given.rows(rows), gains[rows], 8)[0].backward()
        start += size
    assert leaf.grad is not None
    torch.testing.assert_close(leaf.grad, whole)


def test_data_parallel_ranks_average_to_the_same() -> None:
    """FSDP averages gradients over ranks; verl multiplies each rank's loss by their number."""
    given = batch(*SHAPES[1])
    gains = given.gains
    mine = ours(given.logprobs, given, gains, LENGTH, 8).loss
    halves = [slice(0, 4), slice(4, 8)]
    theirs = [verl_loss(given.logprobs[r], given.rows(r), gains[r], 8, ranks=2)[0] for r in halves]
    torch.testing.assert_close(sum(theirs) / 2, mine)


def test_aggregation_alone_is_the_sum_over_tokens_by_a_constant() -> None:
    given = batch(*SHAPES[2])
    found = agg_loss(given.logprobs, given.policy, DR_GRPO, loss_scale_factor=LENGTH)
    expected = given.logprobs[given.policy].sum() / (given.rollouts * LENGTH)
    torch.testing.assert_close(found, expected)


# ---- what differs by definition; docs/verl.md lists it -----------------------------------------------------------------


def test_differs_a_group_of_one_keeps_its_reward_as_advantage() -> None:
    reward, policy = torch.tensor([0.25], dtype=torch.float64), torch.ones(1, 1, dtype=torch.bool)
    assert verl_advantages(reward, ["alone"], policy).item() == 0.25
    assert advantages(reward, torch.tensor([True])).item() == 0


def test_differs_a_missing_reward_spoils_its_group() -> None:
    rewards = torch.tensor([1.0, math.nan, 0.0], dtype=torch.float64)
    assert verl_advantages(rewards, ["g"] * 3, torch.ones(3, 1, dtype=torch.bool)).isnan().all()
    assert advantages(rewards, torch.tensor([True, False, True])).tolist() == [0.5, 0, -0.5]


def far(ratio: float) -> Batch:
    """One rollout of one token whose ratio is this, with advantage -1."""
    one = torch.tensor([[math.log(ratio)]], dtype=torch.float64)
    return Batch(one, torch.zeros_like(one), torch.ones(1, 1, dtype=torch.bool), one[0], 1)


def test_differs_dual_clip_bounds_the_loss_of_bad_tokens_that_became_likely() -> None:
    """Above 3, a token with a negative advantage has no gradient in verl; the surrogate itself has no such bound."""
    given, gain = far(4.0), torch.tensor([-1.0], dtype=torch.float64)
    mine, my_grad = with_gradient(lambda leaf: ours(leaf, given, gain, LENGTH, 1), given)
    theirs, their_grad = with_gradient(lambda leaf: verl_loss(leaf, given, gain, 1), given)
    assert (mine.loss.item(), theirs[0].item()) == (pytest.approx(4 / LENGTH), pytest.approx(3 / LENGTH))
    assert my_grad.item() == pytest.approx(4 / LENGTH)
    assert their_grad.item() == 0
    assert theirs[1]["actor/pg_clipfrac_lower"] == 1
    assert verl_loss(given.logprobs, given, gain, 1, dual_clip=1e9)[0].item() == pytest.approx(4 / LENGTH)


def test_differs_log_ratios_beyond_20_are_cut_off() -> None:
    given, gain = far(math.exp(21)), torch.tensor([-1.0], dtype=torch.float64)
    assert ours(given.logprobs, given, gain, LENGTH, 1).loss.item() == pytest.approx(math.exp(21) / LENGTH)
    assert verl_loss(given.logprobs, given, gain, 1, dual_clip=1e12)[0].item() == pytest.approx(math.exp(20) / LENGTH)


def test_differs_rollouts_that_are_left_out_stay_in_verls_divisor() -> None:
    """Its trainer divides by mini-batch x n, whatever came of them; we divide by those that were judged."""
    given = batch(*SHAPES[1])
    gains = given.gains
    judged = slice(0, 6)
    mine = ours(given.logprobs[judged], given.rows(judged), gains[judged], LENGTH, 6).loss
    theirs, _ = verl_loss(given.logprobs[judged], given.rows(judged), gains[judged], 8)
    torch.testing.assert_close(theirs, mine * 6 / 8)
