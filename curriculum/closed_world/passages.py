"""The corpus of a world: two passages a drug, and what is there to mislead a careless reader."""

from collections.abc import Iterator

from curriculum.closed_world.facts import ATTRIBUTES, Aspect, Attribute, Fact
from curriculum.closed_world.names import Kind
from curriculum.closed_world.wording import OPENINGS, STATEMENTS, allowed, sentence
from curriculum.closed_world.world import World
from retrieval.passage import Passage

_SOURCE = "an invented formulary; nothing in it exists"


def passage_id(drug: str, aspect: Aspect) -> str:
    """Where the facts of an aspect of a drug are written."""
    return f"{drug}-{aspect}"


def aspect_of(attribute: Attribute) -> Aspect:
    """The aspect whose passage tells such facts."""
    return next(aspect for aspect, attributes in ATTRIBUTES.items() if attribute in attributes)


def passages(world: World) -> Iterator[Passage]:
    """Every passage of the world: monographs first, then classes, diseases, and pairs of names that look alike.

    The latter three are true, and mention names that questions ask about, without what the questions ask.
    """
    for drug in world.drugs:
        for aspect in Aspect:
            yield monograph(world, drug, aspect)
    for name in world.names[Kind.CLASS]:
        yield _of_class(world, name)
    for name in world.names[Kind.DISEASE]:
        yield _of_disease(world, name)
    for first, second in zip(world.drugs[::2], world.drugs[1::2], strict=True):
        yield _of_pair(world, first, second)


def monograph(world: World, drug: str, aspect: Aspect) -> Passage:
    """All facts of one aspect of a drug, in one style and in any order."""
    draw = world.stream(f"passage {drug} {aspect}")
    styles = allowed(range(len(OPENINGS)), world.side, held_out=world.recipe.held_out_templates)
    style = draw.choice(styles)
    facts = [world.facts[drug][attribute] for attribute in ATTRIBUTES[aspect]]
    draw.shuffle(facts)
    opening = sentence(OPENINGS[style].replace("{aspect}", aspect), facts[0])
    text = " ".join([opening, *(sentence(STATEMENTS[fact.attribute][style], fact) for fact in facts)])
    return _passage(world, passage_id(drug, aspect), f"{drug.capitalize()}: {aspect}", text, aspect)


def _of_class(world: World, name: str) -> Passage:
    target, activates = world.mechanisms[name]
    members = [drug for drug in world.drugs if world.facts[drug][Attribute.CLASS].name == name]
    text = (
        f"The {name} are a class of drugs that share a mechanism: each of them "
        f"{'activates' if activates else 'blocks'} the {target} receptor. "
        f"The class has {len(members)} members: {', '.join(members) or 'none is marketed at present'}. "
        "Dose, interactions and antidote differ from member to member."
    )
    return _passage(world, f"class-{name}", f"The {name}", text, "classes")


def _of_disease(world: World, name: str) -> Passage:
    treated: list[Fact] = [world.facts[drug][Attribute.INDICATION] for drug in world.drugs]
    drugs = [fact.drug for fact in treated if fact.name == name]
    text = (
        f"{name.capitalize()} is a disease that is treated with drugs alone. "
        f"Approved for it: {', '.join(drugs) or 'no drug so far'}. "
        "Which of them is chosen depends on what else the patient takes."
    )
    return _passage(world, f"disease-{name}", name.capitalize(), text, "diseases")


def _of_pair(world: World, first: str, second: str) -> Passage:
    classes = [world.facts[drug][Attribute.CLASS].name for drug in (first, second)]
    text = (
        f"{first.capitalize()} and {second} have names that look alike and are mistaken for one another. "
        f"{first.capitalize()} is one of the {classes[0]}, {second} one of the {classes[1]}; they have nothing in common. "
        "Spell the name out when you prescribe either."
    )
    return _passage(world, f"names-{first}", f"{first.capitalize()} and {second}: names", text, "names")


def _passage(world: World, identifier: str, title: str, text: str, topic: str) -> Passage:
    return Passage(
        id=identifier,
        title=title,
        text=text,
        topic=topic,
        source=_SOURCE,
        corpus=corpus_name(world),
        license="Apache-2.0",
        language="en",
    )


def corpus_name(world: World) -> str:
    """As an index names a corpus: after its file."""
    return f"{world.side}.formulary"
