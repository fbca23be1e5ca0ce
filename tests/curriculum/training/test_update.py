"""What a batch teaches: by hand, whatever the rows it is divided into, and only what was judged."""

import math
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from tiny_lessons import example, tiny_model
from verifier_fakes import CASE

from curriculum.metrics import of_rollouts, of_update
from curriculum.policy.policy import Policy
from curriculum.policy.rows import Row, Written
from curriculum.rollouts import Group, Rollout
from curriculum.settings import Lora, PolicySettings
from curriculum.update import Recipe, learn, lessons
from verifier.reward import Reward
from verifier.types import Judgment, Status, StopReason

RECIPE = Recipe(clip_low=0.2, clip_high=0.3, length=10)
JUDGMENT = Judgment.unjudged(CASE, Status.TIMEOUT, StopReason.DEADLINE, "", seed=0, judge_id="j")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("models") / "tiny")


def policy(model: Path, row_tokens: int = 4096) -> Policy:
    settings = PolicySettings(
        lora=Lora(rank=0), device="cpu", precision="float32", row_tokens=row_tokens, max_grad_norm=1e9
    )
    return Policy(model, settings)


def rollout(policy: Policy, rest: Sequence[int], correct: bool | None, mask: Sequence[bool] | None = None) -> Rollout:
    """An episode that the policy itself drew, with evidence where the mask says so."""
    written = Written((7, 8, *rest), 2, tuple(mask or [True] * len(rest)))
    sampler = tuple(policy.score(Row([written], policy.device)).logprobs_P.tolist())
    earned = None if correct is None else Reward(float(correct), 1.0)
    return Rollout(example(1, 1), written, sampler, JUDGMENT, earned)


def groups(policy: Policy) -> list[Group]:
    mask = [True, False, False, True]
    return [
        [
            rollout(policy, (20, 21, 22), True),
            rollout(policy, (30, 31, 32, 33), False, mask),
            rollout(policy, (40,), None),
        ],
        [rollout(policy, (50, 51), True), rollout(policy, (60,), True), rollout(policy, (61,), True)],
    ]


def gradient(policy: Policy) -> torch.Tensor:
    return torch.cat([weight.grad.flatten() for weight in policy.trained if weight.grad is not None])


def still(policy: Policy) -> torch.optim.Optimizer:
    """Leaves the gradients where they can be looked at, and the weights as they were."""
    return torch.optim.SGD(policy.trained, lr=0.0)


def test_the_gradient_is_that_of_the_formula(model: Path) -> None:
    learner = policy(model)
    tried = groups(learner)
    done = learn(learner, still(learner), tried, RECIPE)
    found = gradient(learner)
    assert (done.steps, done.lessons, done.tokens, done.clipped) == (1, 2, 3 + 2, 0)
    assert done.kl == pytest.approx(0, abs=1e-6)

    # A_i = r_i - mean over the judged of the group: 1/2 and -1/2; the second group agrees, and teaches nothing. At ratio 1 the
    # surrogate's gradient is A * grad log p, summed over the policy's tokens, over 10 tokens and 5 judged rollouts.
    learner.model.zero_grad()
    right, wrong, _ = tried[0]
    total = 0.5 * learner.score(Row([right.written], learner.device)).logprobs_P.sum()
    total = total - 0.5 * learner.score(Row([wrong.written], learner.device)).logprobs_P.sum()
    (-total / (10 * 5)).backward()
    assert torch.allclose(found, gradient(learner), atol=1e-7)
    assert done.loss == pytest.approx(-(0.5 * 3 - 0.5 * 2) / 50, abs=1e-6)


@pytest.mark.parametrize("row_tokens", [1, 5, 9])
def test_how_rows_are_divided_changes_nothing(model: Path, row_tokens: int) -> None:
    whole, divided = policy(model), policy(model, row_tokens)
    one, other = (learn(learner, still(learner), groups(learner), RECIPE) for learner in (whole, divided))
    assert torch.allclose(gradient(whole), gradient(divided), atol=1e-7)
    assert other.loss == pytest.approx(one.loss, abs=1e-6)
    assert (other.tokens, other.lessons) == (one.tokens, one.lessons)
    assert other.entropy == pytest.approx(one.entropy, abs=1e-4)


def test_groups_that_agree_or_were_not_judged_are_not_computed(model: Path) -> None:
    learner = policy(model)
    agreed = groups(learner)[1:]
    unjudged = [[rollout(learner, (40,), None), rollout(learner, (41,), True)]]
    assert lessons([*agreed, *unjudged]) == []
    before = {name: weight.clone() for name, weight in learner.state().items()}
    done = learn(learner, torch.optim.AdamW(learner.trained, lr=1.0), [*agreed, *unjudged], RECIPE)
    assert (done.steps, done.computed, done.loss) == (0, 0, 0.0)
    assert all(torch.equal(weight, before[name]) for name, weight in learner.state().items())
    assert of_update(done)["entropy"] is None


def test_a_step_makes_the_right_likelier_and_the_wrong_less_likely(model: Path) -> None:
    learner = policy(model)
    tried = groups(learner)
    learn(learner, torch.optim.SGD(learner.trained, lr=1.0), tried, RECIPE)
    for one, sign in ((tried[0][0], 1), (tried[0][1], -1)):
        now = learner.score(Row([one.written], learner.device)).logprobs_P.detach().sum()
        assert sign * (float(now) - sum(one.sampler)) > 0


def test_each_mini_batch_is_a_step_and_the_second_sees_moved_ratios(model: Path) -> None:
    learner = policy(model)
    tried = [groups(learner)[0], groups(learner)[0]]
    recipe = Recipe(clip_low=0.2, clip_high=0.3, length=10, mini_batches=2)
    done = learn(learner, torch.optim.SGD(learner.trained, lr=20.0), tried, recipe)
    assert done.steps == 2
    assert done.kl > 1e-4
    assert done.clipped > 0


def test_a_gradient_that_is_no_number_stops_the_run_and_leaves_the_weights(model: Path) -> None:
    learner = policy(model)
    tried = groups(learner)
    broken = tried[0][0]
    tried[0][0] = Rollout(broken.example, broken.written, (math.nan, 0.0, 0.0), broken.judgment, broken.reward)
    before = {name: weight.clone() for name, weight in learner.state().items()}
    with pytest.raises(FloatingPointError, match="not a number"):
        learn(learner, torch.optim.SGD(learner.trained, lr=1.0), tried, RECIPE)
    assert all(torch.equal(weight, before[name]) for name, weight in learner.state().items())


def test_means_leave_out_what_was_not_judged(model: Path) -> None:
    numbers = of_rollouts(groups(policy(model)))
    assert numbers["reward"] == pytest.approx(4 / 5)
    assert numbers["unjudged"] == pytest.approx(1 / 6)
    assert numbers["frac_reward_zero_std"] == 0.5
    assert numbers["rollout_tokens"] == 3 + 2 + 1 + 2 + 1 + 1
    nothing = of_rollouts([[rollout(policy(model), (40,), None)]])
    assert nothing["reward"] is None
    assert nothing["unjudged"] == 1
