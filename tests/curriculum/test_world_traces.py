from collections import Counter

import pytest
from worlds import all_questions, all_traces, small_world

from curriculum.closed_world.facts import Attribute, told
from curriculum.closed_world.passages import aspect_of, monograph, passage_id, passages
from curriculum.closed_world.questions import Asked
from curriculum.closed_world.traces import Reasoned, traces
from curriculum.closed_world.wording import CLAIMS, DIRECT, FRAMES, OPENINGS, REVERSED, STATEMENTS, allowed
from curriculum.closed_world.world import QUESTION_KINDS, Recipe, World, make_world
from curriculum.faults import Fault, Side
from retrieval.clean import Cleaner


@pytest.fixture(params=list(Side))
def world(request: pytest.FixtureRequest) -> World:
    return small_world(request.param)


def true_fact(world: World, asked: Asked, letter: str) -> bool:
    fact = asked.facts[letter]
    return world.facts[fact.drug][fact.attribute] == fact


def test_exactly_one_option_is_true_and_no_question_comes_twice(world: World) -> None:
    asked = all_questions(world)
    for one in asked:
        assert [letter for letter in one.options if true_fact(world, one, letter)] == [one.gold]
        assert len(set(one.options.values())) == len(one.options) == len(one.facts) >= 2
        assert one.misconception != one.gold
    assert len({(one.facts[one.gold], one.template.rpartition("-")[0]) for one in asked}) == len(asked)
    assert set(Counter(one.template.rpartition("-")[0] for one in asked).values()) == {96 // QUESTION_KINDS}


def test_right_traces_are_right_and_wrong_ones_wrong_in_one_claim(world: World) -> None:
    for trace in all_traces(world):
        truths = [world.facts[claim.said.drug][claim.said.attribute] for claim in trace.claims]
        assert truths == [claim.true for claim in trace.claims]
        wrong = [claim for claim in trace.claims if not claim.right]
        assert len(wrong) == (trace.label == 0)
        assert trace.wrong == (trace.claims.index(wrong[0]) if wrong else None)
        assert {claim.said.drug for claim in trace.claims} == {trace.drug}
        # The answer follows from what is claimed: it is the option that amounts to the claim about what was asked.
        assert trace.asked.facts[trace.answer] in [claim.said for claim in trace.claims]


def test_claims_stand_where_they_are_said_to(world: World) -> None:
    for trace in all_traces(world):
        for claim in trace.claims:
            said = trace.reasoning[claim.start : claim.end].lower()
            assert said.endswith(".")
            for part in (claim.said.drug, claim.said.name, claim.said.amount):
                assert part is None or str(part) in said
        assert trace.asked.options[trace.answer] in trace.reasoning[trace.claims[-1].end :]


def test_labels_are_balanced_in_every_question_and_every_frame(world: World) -> None:
    made = all_traces(world)
    for key in (lambda trace: trace.asked.id, lambda trace: trace.frame):
        right = Counter(key(trace) for trace in made if trace.label)
        assert right == Counter(key(trace) for trace in made if not trace.label)
    assert {trace.fault for trace in made} == {None, *Fault}
    first = Counter(trace.label for trace in made if trace.id.endswith("#01"))
    assert abs(first[0] - first[1]) < len(made) / 8  # the order of a question's traces tells nothing


def test_twins_have_the_same_length_in_words_but_for_a_not(world: World) -> None:
    lengths: dict[int, list[int]] = {0: [], 1: []}
    for trace in all_traces(world):
        lengths[trace.label].append(len(trace.reasoning.split()))
    assert abs(sum(lengths[0]) - sum(lengths[1])) < len(lengths[0]) * 0.25


def test_the_passage_that_decides_says_what_is_true_and_not_what_is_false(world: World) -> None:
    for trace in all_traces(world):
        text = monograph(world, trace.drug, aspect_of(trace.asked.attribute)).text
        for claim in trace.claims:
            for word in told(claim.true).split():
                assert word in text, (claim, text)
            if not claim.right and claim.said.name != claim.true.name:
                assert str(claim.said.name) not in text


def test_every_passage_survives_cleaning(world: World) -> None:
    found = list(passages(world))
    cleaner = Cleaner()
    assert list(cleaner.kept(found)) == found, cleaner.counts
    assert {passage_id(trace.drug, aspect_of(trace.asked.attribute)) for trace in all_traces(world)} <= {
        passage.id for passage in found
    }


def test_held_out_templates_are_not_met_in_training() -> None:
    recipe = Recipe(drugs=40, questions=96, held_out_templates=True)
    train, test = (make_world(side, recipe) for side in Side)
    frames = [{trace.frame for trace in all_traces(world)} for world in (train, test)]
    stems = [{one.template for one in all_questions(world)} for world in (train, test)]
    assert frames == [{frame.name for frame in FRAMES[:-1]}, {FRAMES[-1].name}]
    assert not stems[0] & stems[1]
    assert {one.rpartition("-")[0] for one in stems[0]} == {one.rpartition("-")[0] for one in stems[1]}


def test_held_out_is_the_last_template_of_each_list() -> None:
    for templates in (*CLAIMS.values(), *STATEMENTS.values(), *DIRECT.values(), *REVERSED.values(), FRAMES, OPENINGS):
        assert len(templates) == len(set(templates)) >= 3
        train, test = (allowed(templates, side, held_out=True) for side in Side)
        assert [*train, *test] == [*templates]
        assert allowed(templates, Side.TEST, held_out=False) == templates


@pytest.mark.parametrize("claims", [1, 2, 4])
def test_as_many_claims_as_the_recipe_says(claims: int) -> None:
    made: list[Reasoned] = all_traces(make_world(Side.TRAIN, Recipe(drugs=20, questions=24, claims=claims, traces=2)))
    assert {len(trace.claims) for trace in made} == {claims}
    assert Counter(trace.label for trace in made) == {0: 24, 1: 24}


def test_errors_in_the_answer_make_every_vote_a_tie() -> None:
    world = make_world(Side.TEST, Recipe(drugs=20, questions=48, errors="answer"))
    for asked in all_questions(world):
        answers = {(trace.label, trace.answer) for trace in traces(world, asked)}
        assert answers == {(1, asked.gold), (0, asked.misconception)}


def test_yes_and_no_are_dealt_evenly(world: World) -> None:
    for attribute in (Attribute.INTERACTION, Attribute.CAUTION, Attribute.MILK):
        assert sum(bool(world.facts[drug][attribute].holds) for drug in world.drugs) == len(world.drugs) / 2
