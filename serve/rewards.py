"""What judgments, labels and a policy's own text come to as a reward: pure functions, decomposed.

A part that was asked for and not judged makes the whole reward null, with the status that says why. What the policy did
itself counts: a trace without a readable final answer has no format and fits no label.
"""

from collections.abc import Mapping

from serve.reward_schemas import Accuracy, Components, JudgeItem, Reward, TraceItem, Weights
from verifier.answers.matching import Final, final_answer, lettered_options, option_of
from verifier.parse import parse
from verifier.reward import reward as judge_policy_reward
from verifier.types import Judgment, Status, StopReason


def trace_reward(
    item: TraceItem,
    weights: Weights,
    accuracy: Accuracy,
    correctness: Judgment | None,
    coherence: Judgment | None,
) -> Reward:
    """The reward of a trace: the weighted mean of the parts whose weight is above 0.

    Args:
        item: the trace, its question and its label.
        weights: of the parts.
        accuracy: what the part `accuracy` is.
        correctness: judgment of the trace; None: not asked for.
        coherence: the other judgment of the trace; None: not asked for.
    """
    final = read_answer(item)
    verifier = correctness.p_correct if correctness else None
    label_match = None if final.fits is None else float(final.fits)
    components = Components(
        accuracy=verifier if accuracy == "verifier" else label_match,
        verifier=verifier,
        label_match=label_match,
        coherence=coherence.p_correct if coherence else None,
        format=float(final.answer is not None),
    )
    status, detail = _outcome(item, final, weights.accuracy > 0 and accuracy == "label", correctness, coherence)
    scored = status is Status.SCORED
    return Reward(
        id=item.case.id,
        status=status,
        reward=min(1.0, sum(weighted(components, weights).values())) if scored else None,
        components=components,
        detail=detail,
        judge_id=correctness.judge_id if correctness else None,
        coherence_judge_id=coherence.judge_id if coherence else None,
        judgment_id=correctness.judgment_id if correctness else None,
        coherence_judgment_id=coherence.judgment_id if coherence else None,
    )


def weighted(components: Components, weights: Weights) -> dict[str, float]:
    """What each part adds to the reward of a trace; their sum is the reward, but for rounding. 0 where a part has no weight.

    Raises:
        TypeError: a part with a weight is not known: there is no reward.
    """
    parts: Mapping[str, float | None] = components.model_dump()
    return {name: share * parts[name] if share else 0.0 for name, share in weights.shares().items()}  # type: ignore[operator]


def judge_reward(item: JudgeItem) -> Reward:
    """Med-TIV's R_c x R_f of what a policy that judges wrote. It needs no judge, and always ends in a number."""
    scored = judge_policy_reward(parse(item.response), item.label, StopReason.ANSWERED)
    assert scored is not None  # noqa: S101 - it is None for other endings only
    components = Components(accuracy=scored.correctness, label_match=scored.correctness, format=scored.format)
    return Reward(id=item.id, status=Status.SCORED, reward=scored.total, components=components)


def read_answer(item: TraceItem) -> Final:
    """The final answer of a trace, by the options of its question.

    Options that are not given are looked for in the question's text; they count unless there is a label that is none of them.
    """
    question, label = item.case.question, item.label
    listed = question.options or lettered_options(question.text)
    if question.options is None and listed and label is not None and option_of(label, listed) is None:
        listed = None
    return final_answer(item.case.trace.render(), listed, label)


def _outcome(
    item: TraceItem, final: Final, by_label: bool, correctness: Judgment | None, coherence: Judgment | None
) -> tuple[Status | str, str]:
    """Whether there is a reward, or the first reason why there is none."""
    if by_label and final.fits is None:
        why = "accuracy by label needs one" if item.label is None else "the label is none of the options"
        return "no_label", why
    for judgment, about in ((correctness, "correctness"), (coherence, "coherence")):
        if judgment is not None and judgment.status is not Status.SCORED:
            detail = f": {judgment.detail}" if judgment.detail else ""
            return judgment.status, f"{about} was not judged{detail}"
    return Status.SCORED, ""
