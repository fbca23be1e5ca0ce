from dataclasses import fields
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from worlds import small_world

from curriculum.closed_world.facts import SHAPES, Attribute, Fact, falsified, faults, told
from curriculum.closed_world.names import Kind
from curriculum.closed_world.world import Recipe
from curriculum.faults import Fault

WAYS = [(attribute, fault) for attribute in Attribute for fault in faults(attribute)]
PART = {Fault.ENTITY: "name", Fault.NUMBER: "amount", Fault.DIRECTION: "holds", Fault.NEGATION: "holds"}


def differing(first: Fact, second: Fact) -> list[str]:
    return [part.name for part in fields(Fact) if getattr(first, part.name) != getattr(second, part.name)]


@given(st.sampled_from(WAYS), st.integers(0, 39), st.randoms(use_true_random=False))
def test_a_false_fact_differs_in_the_part_that_its_fault_names(
    way: tuple[Attribute, Fault], drug: int, draw: Random
) -> None:
    world, (attribute, fault) = small_world(), way
    true = world.facts[world.drugs[drug]][attribute]
    false = falsified(true, fault, world.names, world.names_of(true.drug), draw)
    assert differing(true, false) == [PART[fault]]
    assert told(true) != told(false)
    assert false.name == true.name or false.name not in world.names_of(true.drug)
    assert false.amount is None or false.amount in SHAPES[attribute].amounts


def test_every_fault_occurs_and_some_do_not_fit() -> None:
    assert {fault for _, fault in WAYS} == set(Fault)
    dose = Fact("x", Attribute.DOSE, amount=5)
    with pytest.raises(ValueError, match="dose cannot be false by negation"):
        falsified(dose, Fault.NEGATION, {}, frozenset(), Random(0))


def test_look_alikes_agree_in_nothing_but_yes_and_no() -> None:
    world = small_world()
    for drug in world.drugs:
        for attribute, fact in world.facts[drug].items():
            other = world.facts[world.look_alike(drug)][attribute]
            if SHAPES[attribute].kind:
                assert fact.name != other.name
            elif SHAPES[attribute].amounts:
                assert fact.amount != other.amount


def test_every_drug_has_each_fact_and_the_mechanism_of_its_class() -> None:
    world = small_world()
    for drug, facts in world.facts.items():
        assert set(facts) == set(Attribute)
        assert {fact.drug for fact in facts.values()} == {drug}
        mechanism = facts[Attribute.MECHANISM]
        assert world.mechanisms[str(facts[Attribute.CLASS].name)] == (mechanism.name, mechanism.holds)
        assert len(world.names_of(drug)) == 2 + sum(SHAPES[attribute].kind is not None for attribute in Attribute)
    assert len(world.names[Kind.DRUG]) == 40


@pytest.mark.parametrize("wrong", [{"drugs": 41}, {"traces": 3}, {"claims": 5}, {"drugs": 20, "questions": 241}])
def test_a_recipe_that_cannot_be_cooked_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValidationError):
        Recipe(**wrong)
    assert Recipe(drugs=20, questions=240).questions == 240
