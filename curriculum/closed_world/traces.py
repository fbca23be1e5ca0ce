"""Reasoning about a question: right traces, and for each a twin that is wrong in one place.

Twins share everything that can be seen without knowing the world: frame, attributes, order, templates. One claim differs in one
part, and what stands there is drawn as the true value was. So no form tells them apart.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Literal

from curriculum.closed_world.facts import ATTRIBUTES, Attribute, Fact, falsified, faults
from curriculum.closed_world.passages import aspect_of
from curriculum.closed_world.questions import Asked
from curriculum.closed_world.wording import CLAIMS, FRAMES, Frame, allowed, sentence
from curriculum.closed_world.world import World
from curriculum.faults import Fault


@dataclass(frozen=True, slots=True)
class Claim:
    """One statement of a trace."""

    said: Fact
    true: Fact  # what the world has in its place: the same drug and attribute
    start: int  # where its sentence stands in the reasoning, in characters
    end: int

    @property
    def right(self) -> bool:
        return self.said == self.true


@dataclass(frozen=True, slots=True)
class Reasoned:
    """A trace, with all that is known of it."""

    id: str
    asked: Asked
    frame: str
    reasoning: str
    answer: str  # the option that it ends with
    claims: tuple[Claim, ...]
    fault: Fault | None  # of the one wrong claim

    @property
    def label(self) -> Literal[0, 1]:
        """1: free of errors."""
        return 0 if self.fault else 1

    @property
    def drug(self) -> str:
        """What all claims are about."""
        return self.claims[0].said.drug

    @property
    def wrong(self) -> int | None:
        """Which claim is the wrong one, from 0."""
        return next((place for place, claim in enumerate(self.claims) if not claim.right), None)


def traces(world: World, asked: Asked) -> Iterator[Reasoned]:
    """The traces of a question, right and wrong ones in equal number, in an order that tells nothing."""
    draw = world.stream(f"traces {asked.id}")
    made = [one for _ in range(world.recipe.traces // 2) for one in _twins(world, asked, draw)]
    draw.shuffle(made)
    for number, trace in enumerate(made, start=1):
        yield replace(trace, id=f"{asked.id}#{number:02d}")


def _twins(world: World, asked: Asked, draw: Random) -> tuple[Reasoned, Reasoned]:
    held_out = world.recipe.held_out_templates
    frame = draw.choice(allowed(FRAMES, world.side, held_out=held_out))
    others = [attribute for attribute in ATTRIBUTES[aspect_of(asked.attribute)] if attribute is not asked.attribute]
    attributes = draw.sample(others, min(world.recipe.claims - 1, len(others)))
    attributes.insert(draw.randrange(len(attributes) + 1), asked.attribute)
    templates = [draw.choice(allowed(CLAIMS[attribute], world.side, held_out=held_out)) for attribute in attributes]

    true = _truths(world, asked.facts[asked.gold].drug, attributes)
    right = _written(frame, asked, asked.gold, templates=templates, said=true, true=true)

    mistaken = asked.facts[asked.misconception]
    place, fault = _where(asked, attributes, draw, anywhere=world.recipe.errors == "anywhere")
    if attributes[place] is asked.attribute:
        # The trace may have chosen another drug; what else it says is true of that one.
        true, false, letter = _truths(world, mistaken.drug, attributes), mistaken, asked.misconception
    else:
        false = falsified(true[place], fault, world.names, world.names_of(true[place].drug), draw)
        letter = asked.gold
    said = [*true[:place], false, *true[place + 1 :]]
    wrong = _written(frame, asked, letter, templates=templates, said=said, true=true, fault=fault)
    return right, wrong


def _truths(world: World, drug: str, attributes: Sequence[Attribute]) -> list[Fact]:
    return [world.facts[drug][attribute] for attribute in attributes]


def _where(asked: Asked, attributes: Sequence[Attribute], draw: Random, *, anywhere: bool) -> tuple[int, Fault]:
    """The claim that will be wrong, and how: ways that are possible at all are equally frequent, then places."""
    possible = [
        (place, fault)
        for place, attribute in enumerate(attributes)
        if anywhere or attribute is asked.attribute
        for fault in ((_misconceived(asked),) if attribute is asked.attribute else faults(attribute))
    ]
    chosen = draw.choice(sorted({fault for _, fault in possible}))
    return draw.choice([one for one in possible if one[1] is chosen])


def _misconceived(asked: Asked) -> Fault:
    """How the misconception differs from the truth."""
    true, mistaken = asked.facts[asked.gold], asked.facts[asked.misconception]
    if true.amount != mistaken.amount:
        return Fault.NUMBER
    if true.holds == mistaken.holds:
        return Fault.ENTITY
    return next(fault for fault in faults(asked.attribute) if fault in (Fault.DIRECTION, Fault.NEGATION))


def _written(
    frame: Frame,
    asked: Asked,
    letter: str,
    *,
    templates: Sequence[str],
    said: Sequence[Fact],
    true: Sequence[Fact],
    fault: Fault | None = None,
) -> Reasoned:
    text, claims = frame.opening, []
    for number, (template, fact, real) in enumerate(zip(templates, said, true, strict=True), start=1):
        text += (frame.between if number > 1 else "") + frame.before.format(number=number)
        start = len(text)
        text += sentence(template, fact)
        claims.append(Claim(fact, real, start, len(text)))
    text += frame.closing.format(letter=letter, option=asked.options[letter])
    return Reasoned("", asked, frame.name, text, letter, tuple(claims), fault)
