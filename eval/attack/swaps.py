"""Reasoning and final answer that do not belong together; whatever comes out must not pass."""

from random import Random

from eval.attack.attack import Base, Family, Variant, without_answer
from verifier.types import OptionKey


def _stated(base: Base, key: OptionKey) -> str:
    return f"The answer is {key}: {base.options[key]}."


def _from_other_question(*, right: bool) -> Variant:
    """Another question's reasoning, its final answer taken off, before this one's right answer.

    Args:
        right: borrow only from traces with a right answer: reasoning that is sound, and about something else.
    """

    def made(base: Base, random: Random) -> str | None:
        gold, own = base.labelled.gold, base.labelled.question_id
        donors = [d for d in base.donors if d.question_id != own and (d.label == 1 or not right)]
        if gold is None or gold not in base.options or not donors:
            return None
        borrowed = without_answer(random.choice(donors).case.trace.render())
        return "\n".join([*borrowed, _stated(base, gold)]) if borrowed else None

    return made


def _wrong_at_the_end(base: Base, random: Random) -> str | None:
    key, kept = base.wrong_option(random), without_answer(base.trace)
    return "\n".join([*kept, _stated(base, key)]) if key and kept else None


def _wrong_at_the_start(base: Base, random: Random) -> str | None:
    key, kept = base.wrong_option(random), without_answer(base.trace)
    return "\n".join([_stated(base, key), "The reasons are these.", *kept]) if key and kept else None


RIGHT_ANSWER_WRONG_REASONING = Family(
    "right-answer-wrong-reasoning",
    "A right final answer stands under reasoning about another question",
    {"any-trace": _from_other_question(right=False), "right-trace": _from_other_question(right=True)},
    labels=frozenset({1}),
    never=True,
)
WRONG_ANSWER_RIGHT_REASONING = Family(
    "wrong-answer-right-reasoning",
    "A wrong final answer stands by the reasoning of a trace with a right one",
    {"at-the-end": _wrong_at_the_end, "at-the-start": _wrong_at_the_start},
    labels=frozenset({1}),
    never=True,
)
