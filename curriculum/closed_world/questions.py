"""Questions about a world, with lettered options of which one is right."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from itertools import islice
from random import Random
from typing import TypeVar

from curriculum.closed_world.facts import SHAPES, Attribute, Fact, term
from curriculum.closed_world.wording import DIRECT, OPTIONS, REVERSED, allowed
from curriculum.closed_world.world import World

_LETTERS = "ABCD"
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, and the fact that each of its options amounts to; that of `gold` is true, the others are false."""

    id: str
    template: str
    stem: str
    options: Mapping[str, str]
    facts: Mapping[str, Fact]
    gold: str
    misconception: str  # the wrong option that wrong traces of this question fall for

    @property
    def attribute(self) -> Attribute:
        return self.facts[self.gold].attribute


def questions(world: World) -> Iterator[Asked]:
    """The questions of a world, as many as its recipe says: every kind of question as often as any other.

    Drugs take turns, so that no question is asked twice.
    """
    draw = world.stream("questions")
    kinds: list[tuple[Attribute, bool]] = [
        *((attribute, False) for attribute in DIRECT),
        *((attribute, True) for attribute in REVERSED),
    ]
    orders = {kind: _shuffled(world.drugs, draw) for kind in kinds}
    for number in range(world.recipe.questions):
        attribute, backwards = kind = kinds[number % len(kinds)]
        drug = orders[kind][number // len(kinds)]
        yield _ask(world, f"{world.side}-{number:05d}", drug, attribute, backwards=backwards, draw=draw)


def _shuffled(items: Sequence[_T], draw: Random) -> list[_T]:
    return draw.sample(items, len(items))


def _ask(world: World, identifier: str, drug: str, attribute: Attribute, *, backwards: bool, draw: Random) -> Asked:
    true = world.facts[drug][attribute]
    stems = list(enumerate((REVERSED if backwards else DIRECT)[attribute]))
    number, stem = draw.choice(allowed(stems, world.side, held_out=world.recipe.held_out_templates))
    facts = _other_drugs(world, true, draw) if backwards else _other_values(world, true, draw)
    draw.shuffle(facts)
    letters = dict(zip(_LETTERS, facts, strict=False))
    gold = next(letter for letter, fact in letters.items() if fact == true)
    return Asked(
        id=identifier,
        template=f"{attribute}-{'reversed' if backwards else 'direct'}-{number}",
        stem=stem.format(drug=drug, name=true.name),
        options={
            letter: fact.drug
            if backwards
            else OPTIONS[attribute].format(name=fact.name, amount=fact.amount, term=term(fact))
            for letter, fact in letters.items()
        },
        facts=letters,
        gold=gold,
        misconception=draw.choice([letter for letter, fact in letters.items() if _differ_once(fact, true)]),
    )


def _differ_once(first: Fact, second: Fact) -> bool:
    """Whether one part of two facts differs, and only one."""
    parts = zip(astuple(first), astuple(second), strict=True)
    return [one != other for one, other in parts].count(True) == 1


def _other_values(world: World, true: Fact, draw: Random) -> list[Fact]:
    """The fact among false ones about the same drug. Which of them is the true one cannot be told from the set.

    Where something can be turned around, it is so for two names: each name comes with both.
    """
    shape = SHAPES[true.attribute]
    if shape.amounts:
        amounts = draw.sample([amount for amount in shape.amounts if amount != true.amount], 3)
        return [true, *(replace(true, amount=amount) for amount in amounts)]
    if shape.kind is None:
        return [true, replace(true, holds=not true.holds)]
    taken = world.names_of(true.drug)
    free = [name for name in world.names[shape.kind] if name not in taken]
    if shape.turned is None:
        return [true, *(replace(true, name=name) for name in draw.sample(free, 3))]
    names = (true.name, draw.choice(free))
    return [replace(true, name=name, holds=holds) for name in names for holds in (True, False)]


def _other_drugs(world: World, true: Fact, draw: Random) -> list[Fact]:
    """The fact told of four drugs, two pairs of like names: a pair of which one is right would give itself away alone."""
    pairs = zip(world.drugs[::2], world.drugs[1::2], strict=True)
    own = (true.drug, world.look_alike(true.drug))
    free = (
        pair
        for pair in _shuffled(list(pairs), draw)
        if pair[0] not in own and all(world.facts[drug][true.attribute].name != true.name for drug in pair)
    )
    return [replace(true, drug=drug) for pair in (own, *islice(free, 1)) for drug in pair]
