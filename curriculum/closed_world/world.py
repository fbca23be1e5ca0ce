"""A world: its drugs, and all that is true of them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from curriculum.closed_world.facts import SHAPES, Attribute, Fact
from curriculum.closed_world.names import Kind, Namer, real_words
from curriculum.closed_world.wording import DIRECT, REVERSED
from curriculum.faults import Side

VERSION = "1"  # raised whenever the same recipe gives other files
QUESTION_KINDS = len(DIRECT) + len(REVERSED)


class Recipe(BaseModel):
    """All that decides what a world is. The same recipe and version give the same bytes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seed: Annotated[int, Field(ge=0)] = 0
    drugs: Annotated[int, Field(ge=20, le=2000, multiple_of=2, description="They come in pairs of like names.")] = 200
    questions: Annotated[int, Field(ge=1, description="At most 12 for each drug: there are no more.")] = 400
    traces: Annotated[int, Field(ge=2, multiple_of=2, description="For each question; half of them are wrong.")] = 4
    claims: Annotated[int, Field(ge=1, le=4, description="Statements in each trace.")] = 3
    errors: Annotated[
        Literal["anywhere", "answer"],
        Field(
            description="Where wrong traces are wrong: in any claim, or in the one that decides the answer, so that all "
            "wrong traces of a question agree on one wrong answer and a vote among its traces is a tie."
        ),
    ] = "anywhere"
    passages: Annotated[
        int, Field(ge=1, le=4, description="Shown for the search of a demonstration; `judge.top_k` of the training.")
    ] = 2
    held_out_templates: Annotated[
        bool, Field(description="Word training and test worlds with different templates; else both use all.")
    ] = False

    @model_validator(mode="after")
    def _no_question_twice(self) -> Self:
        if self.questions > QUESTION_KINDS * self.drugs:
            raise ValueError(
                f"{self.drugs} drugs have {QUESTION_KINDS * self.drugs} questions, {self.questions} are wanted"
            )
        return self


@dataclass(frozen=True)
class World:
    """Names by kind, and for each drug its facts. Drugs 2i and 2i + 1 have names that look alike."""

    side: Side
    recipe: Recipe
    names: Mapping[Kind, tuple[str, ...]]
    facts: Mapping[str, Mapping[Attribute, Fact]]
    mechanisms: Mapping[str, tuple[str, bool]]  # of each class: its target, and whether it activates it

    @property
    def drugs(self) -> tuple[str, ...]:
        return self.names[Kind.DRUG]

    def look_alike(self, drug: str) -> str:
        """The drug whose name looks like this one's."""
        return self.drugs[self._places[drug] ^ 1]

    @cached_property
    def _places(self) -> Mapping[str, int]:
        return {drug: place for place, drug in enumerate(self.drugs)}

    def names_of(self, drug: str) -> frozenset[str]:
        """The drug's own name, its look-alike's, and every name in its facts: none of them may stand for a wrong one."""
        return frozenset((drug, self.look_alike(drug), *(fact.name for fact in self.facts[drug].values() if fact.name)))

    def stream(self, purpose: str) -> Random:
        """Random numbers for one purpose: the same in every process, whatever else was drawn."""
        return Random(f"{VERSION} {self.side} {self.recipe.seed} {purpose}")  # noqa: S311 - a text as seed is hashed the same everywhere


def make_world(side: Side, recipe: Recipe) -> World:
    """The world of a recipe.

    Raises:
        NamesSpentError: it would need more names than there are.
    """
    namer = Namer(side, recipe.seed, real_words())
    drugs = tuple(_pairs(namer, recipe.drugs // 2))
    counts = {Kind.CLASS: 8, Kind.TARGET: 8, Kind.DISEASE: 5, Kind.ANTIDOTE: 8}  # drugs to each of them
    others = {
        kind: tuple(namer.name(kind) for _ in range(max(8, recipe.drugs // share))) for kind, share in counts.items()
    }
    names: dict[Kind, tuple[str, ...]] = {Kind.DRUG: drugs, **others}
    draw = Random(f"{VERSION} {side} {recipe.seed} facts")  # noqa: S311 - as above
    targets = list(names[Kind.TARGET])
    draw.shuffle(targets)
    ways = zip(targets, _evenly(len(targets), draw), strict=True)
    mechanisms = dict(zip(names[Kind.CLASS], ways, strict=True))
    dealt = {attribute: _evenly(len(drugs), draw) for attribute, shape in SHAPES.items() if shape.turned}
    facts: dict[str, Mapping[Attribute, Fact]] = {}
    for number, drug in enumerate(drugs):
        holds = {attribute: answers[number] for attribute, answers in dealt.items()}
        alike = drugs[number ^ 1]
        facts[drug] = _facts(
            drug, alike, facts.get(alike, {}), names=names, mechanisms=mechanisms, holds=holds, draw=draw
        )
    return World(side, recipe, names, facts, mechanisms)


def _pairs(namer: Namer, count: int) -> Iterator[str]:
    for name in [namer.name(Kind.DRUG) for _ in range(count)]:
        yield name
        yield namer.look_alike(name)


def _evenly(count: int, draw: Random) -> list[bool]:
    """Yes and no, each for half of them, in random order."""
    return draw.sample([number % 2 == 0 for number in range(count)], count)


def _facts(
    drug: str,
    look_alike: str,
    twin: Mapping[Attribute, Fact],
    *,
    names: Mapping[Kind, tuple[str, ...]],
    mechanisms: Mapping[str, tuple[str, bool]],
    holds: Mapping[Attribute, bool],
    draw: Random,
) -> Mapping[Attribute, Fact]:
    """Facts that differ from the look-alike's wherever there is more than yes and no."""
    made: dict[Attribute, Fact] = {}
    for attribute, shape in SHAPES.items():
        other = twin.get(attribute)
        taken = {drug, look_alike, other and other.name, *(fact.name for fact in made.values())}
        if attribute is Attribute.MECHANISM:
            target, activates = mechanisms[str(made[Attribute.CLASS].name)]
            made[attribute] = Fact(drug, attribute, name=target, holds=activates)
            continue
        fresh = [name for name in names[shape.kind] if name not in taken] if shape.kind else []
        made[attribute] = Fact(
            drug,
            attribute,
            name=draw.choice(fresh) if fresh else None,
            amount=draw.choice([n for n in shape.amounts if not other or n != other.amount]) if shape.amounts else None,
            holds=holds.get(attribute),
        )
    return made
