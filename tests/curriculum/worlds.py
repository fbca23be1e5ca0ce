"""Small worlds that tests share."""

from functools import cache
from typing import Any

from curriculum.closed_world.questions import Asked, questions
from curriculum.closed_world.traces import Reasoned, traces
from curriculum.closed_world.world import Recipe, World, make_world
from curriculum.faults import Side

SMALL = Recipe(drugs=40, questions=96)


@cache
def small_world(side: Side = Side.TRAIN, seed: int = 0, **others: Any) -> World:
    return make_world(side, SMALL.model_copy(update={"seed": seed, **others}))


def all_questions(world: World) -> list[Asked]:
    return list(questions(world))


def all_traces(world: World) -> list[Reasoned]:
    return [trace for asked in questions(world) for trace in traces(world, asked)]
