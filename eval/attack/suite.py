"""Which traces are attacked, and with what: everything follows from the seed."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from random import Random
from typing import Literal

from eval.attack.attack import Attack, Base, Family, Variant
from eval.attack.families import CLEAN
from retrieval.passage import Passage
from verifier.packs import LabelledCase


def draw(cases: Iterable[LabelledCase], questions: int, seed: int) -> list[Base]:
    """One labelled trace of each of so many questions, half of them right as far as the questions allow, whatever their order.

    Reasoning about other questions is borrowed from all of `cases`.
    """
    pool = sorted((labelled for labelled in cases if labelled.label is not None), key=_place)
    traces = {question: list(group) for question, group in groupby(pool, key=lambda labelled: labelled.question_id)}
    random = Random(f"{seed}/draw")  # noqa: S311 - reproducible, not secret
    order = random.sample(sorted(traces), len(traces))
    taken = dict[str, LabelledCase]()
    counts = [0, 0]
    for picky in (True, False):  # first what keeps the balance, then whatever there is
        for question in order:
            wanted: Literal[0, 1] = 0 if counts[0] <= counts[1] else 1
            fitting = [t for t in traces[question] if t.label == wanted or not picky]
            if len(taken) == questions or question in taken or not fitting:
                continue
            taken[question] = random.choice(fitting)
            counts[taken[question].label or 0] += 1
    return bases(taken.values(), pool)


def bases(cases: Iterable[LabelledCase], donors: Sequence[LabelledCase]) -> list[Base]:
    """Labelled cases, numbered; those without a label are left out."""
    labelled = [(case, case.label) for case in cases if case.label is not None]
    return [Base(number, case, label, donors) for number, (case, label) in enumerate(labelled)]


def make_attacks(bases: Sequence[Base], families: Iterable[Family], variants: int, seed: int) -> list[Attack]:
    """The clean traces, then all attacks on the first base, on the second, and so on.

    The variants of a family go round over its bases, so that each is used as often as the others. Those that do not apply to a
    base are skipped.

    Args:
        bases: what is attacked.
        families: how.
        variants: of each family for each base; all that it has if there are fewer.
        seed: the same one gives the same texts.
    """
    clean = [attack for base in bases for attack in _attacks(base, CLEAN, tuple(CLEAN.variants), 1, seed)]
    orders = [(family, _order(family, seed)) for family in families]
    turns = Counter[str]()
    made = list[Attack]()
    for base in bases:
        for family, order in orders:
            if base.label in family.labels:
                start = turns[family.name] % len(order)
                turns[family.name] += variants
                made += _attacks(base, family, (*order[start:], *order[:start]), variants, seed)
    return [*clean, *made]


def _place(labelled: LabelledCase) -> tuple[str, str]:
    return labelled.question_id, labelled.case.id


def _order(family: Family, seed: int) -> tuple[str, ...]:
    names = sorted(family.variants)
    return tuple(Random(f"{seed}/{family.name}").sample(names, len(names)))  # noqa: S311


def _attacks(base: Base, family: Family, order: Sequence[str], count: int, seed: int) -> list[Attack]:
    """The first `count` variants that apply."""
    made = list[Attack]()
    for name in order:
        if len(made) == count:
            break
        attack = _attack(base, family, name, family.variants[name], seed)
        if attack is not None:
            made.append(attack)
    return made


def _attack(base: Base, family: Family, name: str, variant: Variant, seed: int) -> Attack | None:
    text = variant(base, Random(f"{seed}/{family.name}/{name}/{base.labelled.case.id}"))  # noqa: S311
    if text is None:
        return None
    poison = text if isinstance(text, Passage) else None
    trace = base.trace if isinstance(text, Passage) else text
    id = f"{base.number:04d}/{family.name}/{name}"
    return Attack(id, family.name, name, base, 0 if family.never else base.label, trace, poison)
