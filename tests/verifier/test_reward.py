"""The training reward and its factors."""

from typing import Literal

import pytest

from verifier.parse import parse
from verifier.reward import OUTSIDE_THE_POLICY, format_score, reward
from verifier.types import StopReason

VALID = "<think>t</think><answer>{}</answer>"
MANY = "<think>t</think>" + "<answer>0</answer>" * 10 + "<answer>1</answer>"
SHAPELESS = "Well: <answer>1</answer>"


@pytest.mark.parametrize(
    ("text", "gold", "correctness", "shape", "total"),
    [
        (VALID.format(1), 1, 1.0, 1.0, 1.0),
        (VALID.format(0), 0, 1.0, 1.0, 1.0),
        (VALID.format(0), 1, 0.0, 1.0, 0.0),
        (VALID.format(1), 0, 0.0, 1.0, 0.0),
        (MANY, 1, 1.0, 0.25, 0.25),
        (MANY, 0, 0.0, 0.25, 0.0),
        (SHAPELESS, 1, 1.0, 0.0, 0.0),
        (SHAPELESS, 0, 0.0, 0.0, 0.0),
    ],
)
def test_reward_is_correctness_times_format(
    text: str, gold: Literal[0, 1], correctness: float, shape: float, total: float
) -> None:
    given = reward(parse(text), gold, StopReason.ANSWERED)
    assert given is not None
    assert (given.correctness, given.format, given.total) == (correctness, shape, total)


@pytest.mark.parametrize("stop", sorted(set(StopReason) - OUTSIDE_THE_POLICY))
@pytest.mark.parametrize(
    "text", ["<think>I go on and on", "<think>t</think><answer>maybe</answer>", "", VALID.format(7)]
)
@pytest.mark.parametrize("gold", [0, 1])
def test_an_unreadable_answer_is_the_policys_own_fault(stop: StopReason, text: str, gold: Literal[0, 1]) -> None:
    given = reward(parse(text), gold, stop)
    assert given is not None
    assert given.total == 0.0


@pytest.mark.parametrize(
    "stop",
    [StopReason.RETRIEVAL_ERROR, StopReason.ENGINE_ERROR, StopReason.DEADLINE, StopReason.PROMPT_TOO_LONG],
)
def test_what_others_caused_has_no_reward(stop: StopReason) -> None:
    assert reward(parse(VALID.format(1)), 1, stop) is None


def test_what_was_forced_is_not_the_policys() -> None:
    """A forced verdict is a judgment, but the policy's own text holds no answer and earns nothing."""
    given = reward(parse("<think>hm</think>"), 1, StopReason.ANSWERED)
    assert given is not None
    assert given.total == 0.0


def test_a_second_thought_without_thinking_again_keeps_the_format() -> None:
    assert format_score(parse("<think>t</think><answer>0</answer><answer>1</answer>")) == 1.0
