"""What a world says of a drug, and how one fact becomes a false one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random

from curriculum.closed_world.names import Kind
from curriculum.faults import Fault


class Attribute(StrEnum):
    """What a fact is about. Every drug has each of them exactly once."""

    CLASS = "class"
    MECHANISM = "mechanism"
    INDICATION = "indication"
    DOSE = "dose"
    HALF_LIFE = "half-life"
    INTERACTION = "interaction"
    CAUTION = "caution"
    MILK = "milk"
    ANTIDOTE = "antidote"


class Aspect(StrEnum):
    """A drug has a passage for each."""

    PHARMACOLOGY = "pharmacology"
    SAFETY = "safety"


ATTRIBUTES: Mapping[Aspect, tuple[Attribute, ...]] = {
    Aspect.PHARMACOLOGY: (
        Attribute.CLASS,
        Attribute.MECHANISM,
        Attribute.INDICATION,
        Attribute.DOSE,
        Attribute.HALF_LIFE,
    ),
    Aspect.SAFETY: (Attribute.INTERACTION, Attribute.CAUTION, Attribute.MILK, Attribute.ANTIDOTE),
}


@dataclass(frozen=True, slots=True)
class Fact:
    """One statement about a drug; which parts it has depends on the attribute (`SHAPES`), the others are None."""

    drug: str
    attribute: Attribute
    name: str | None = None
    amount: int | None = None
    holds: bool | None = None


@dataclass(frozen=True, slots=True)
class Shape:
    """The parts of an attribute's facts."""

    kind: Kind | None = None  # of the name
    amounts: Sequence[int] = ()
    turned: Fault | None = None  # what it is to turn `holds` around
    terms: tuple[str, str] = ("", "")  # the words for `holds` being true and false


#: `holds` is true of half of all facts, and amounts and names are drawn evenly: a false fact is drawn like a true one.
SHAPES: Mapping[Attribute, Shape] = {
    Attribute.CLASS: Shape(Kind.CLASS),
    Attribute.MECHANISM: Shape(Kind.TARGET, turned=Fault.DIRECTION, terms=("activates", "blocks")),
    Attribute.INDICATION: Shape(Kind.DISEASE),
    Attribute.DOSE: Shape(amounts=(5, 10, 15, 20, 25, 30, 40, 50, 60, 75, 80, 90)),
    Attribute.HALF_LIFE: Shape(amounts=(3, 4, 6, 7, 9, 11, 14, 16, 18, 22, 26, 32)),
    Attribute.INTERACTION: Shape(Kind.DRUG, turned=Fault.DIRECTION, terms=("raises", "lowers")),
    Attribute.CAUTION: Shape(Kind.DISEASE, turned=Fault.NEGATION, terms=("may be given", "must not be given")),
    Attribute.MILK: Shape(turned=Fault.NEGATION, terms=("passes", "does not pass")),
    Attribute.ANTIDOTE: Shape(Kind.ANTIDOTE),
}


def told(fact: Fact) -> str:
    """The value of a fact in the fewest words, as a comparison names it."""
    verb = term(fact)
    match fact.attribute:
        case Attribute.DOSE:
            return f"{fact.amount} mg"
        case Attribute.HALF_LIFE:
            return f"{fact.amount} hours"
        case Attribute.CAUTION:
            return f"{verb} in {fact.name}"
        case Attribute.MILK:
            return verb
        case _:
            return f"{verb} {fact.name}".strip()


def term(fact: Fact) -> str:
    """The word for `holds`; empty for facts without it."""
    return SHAPES[fact.attribute].terms[not fact.holds] if fact.holds is not None else ""


def faults(attribute: Attribute) -> tuple[Fault, ...]:
    """In which ways a fact of this attribute can be false."""
    shape = SHAPES[attribute]
    named = (Fault.ENTITY,) if shape.kind else ()
    counted = (Fault.NUMBER,) if shape.amounts else ()
    return (*named, *counted, *((shape.turned,) if shape.turned else ()))


def falsified(
    true: Fact, fault: Fault, names: Mapping[Kind, Sequence[str]], avoid: frozenset[str], draw: Random
) -> Fact:
    """A false fact that differs from `true` in the one part that `fault` names.

    Args:
        names: what a swapped name is drawn from, evenly, by kind.
        avoid: names that may not stand for a wrong one (`World.names_of`).

    Raises:
        ValueError: facts of this attribute cannot be false in this way.
    """
    shape = SHAPES[true.attribute]
    if fault not in faults(true.attribute):
        raise ValueError(f"a fact about the {true.attribute} cannot be false by {fault}")
    if fault is Fault.ENTITY and shape.kind:
        others = [name for name in names[shape.kind] if name != true.name and name not in avoid]
        return replace(true, name=draw.choice(others))
    if fault is Fault.NUMBER:
        return replace(true, amount=draw.choice([amount for amount in shape.amounts if amount != true.amount]))
    return replace(true, holds=not true.holds)
