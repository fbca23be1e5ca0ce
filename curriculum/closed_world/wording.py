"""How facts are put into words: sentences of traces, sentences of passages, stems of questions, frames of traces.

Nothing here knows whether a fact is true. The last template of each list is the one that held-out worlds keep for testing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from curriculum.closed_world.facts import Attribute, Fact, term
from curriculum.faults import Side

_T = TypeVar("_T")


def allowed(templates: Sequence[_T], side: Side, *, held_out: bool) -> Sequence[_T]:
    """The templates that a world may use: all, or if the last is held out, that one for testing and the others for training."""
    if not held_out:
        return templates
    return templates[-1:] if side is Side.TEST else templates[:-1]


def sentence(template: str, fact: Fact) -> str:
    """A template with a fact in it, beginning with a capital."""
    filled = template.format(drug=fact.drug, name=fact.name, amount=fact.amount, term=term(fact))
    return filled[0].upper() + filled[1:]


#: Sentences of traces.
CLAIMS: Mapping[Attribute, Sequence[str]] = {
    Attribute.CLASS: (
        "{drug} belongs to the {name}.",
        "{drug} is one of the {name}.",
        "by class, {drug} is among the {name}.",
        "the {name} are the class that {drug} is in.",
    ),
    Attribute.MECHANISM: (
        "{drug} {term} the {name} receptor.",
        "it is known that {drug} {term} the {name} receptor.",
        "at the {name} receptor, {drug} binds and {term} it.",
        "the {name} receptor is what {drug} {term}.",
    ),
    Attribute.INDICATION: (
        "{drug} is used to treat {name}.",
        "{drug} is a treatment for {name}.",
        "patients take {drug} against {name}.",
        "{name} is what {drug} is prescribed for.",
    ),
    Attribute.DOSE: (
        "the usual dose of {drug} is {amount} mg a day.",
        "{drug} is usually given at {amount} mg a day.",
        "adults take {amount} mg of {drug} a day.",
        "a day's dose of {drug} amounts to {amount} mg.",
    ),
    Attribute.HALF_LIFE: (
        "the half-life of {drug} is {amount} hours.",
        "{drug} has a half-life of {amount} hours.",
        "half of the {drug} is gone after {amount} hours.",
        "it takes {amount} hours to halve the level of {drug}.",
    ),
    Attribute.INTERACTION: (
        "{drug} {term} the blood level of {name}.",
        "given together, {drug} {term} the level of {name}.",
        "when {name} is taken too, {drug} {term} its level.",
        "the level of {name} is what {drug} {term}.",
    ),
    Attribute.CAUTION: (
        "{drug} {term} in {name}.",
        "in {name}, {drug} {term}.",
        "in patients with {name}, {drug} {term}.",
        "where there is {name}, {drug} {term}.",
    ),
    Attribute.MILK: (
        "{drug} {term} into breast milk.",
        "it is known that {drug} {term} into breast milk.",
        "in nursing mothers, {drug} {term} into the milk.",
        "into the milk of a nursing mother, {drug} {term}.",
    ),
    Attribute.ANTIDOTE: (
        "the antidote of {drug} is {name}.",
        "an overdose of {drug} is treated with {name}.",
        "{name} reverses the effects of {drug}.",
        "against too much {drug}, one gives {name}.",
    ),
}

#: Sentences of passages, a style each: prose, handbook, list, ward note.
STATEMENTS: Mapping[Attribute, Sequence[str]] = {
    Attribute.CLASS: (
        "{drug} is a drug of the class of the {name}.",
        "{drug} is counted among the {name}.",
        "Class: {name}.",
        "group of {drug}: the {name}.",
    ),
    Attribute.MECHANISM: (
        "it acts on the {name} receptor, which it {term}.",
        "{drug} binds to the {name} receptor and {term} it.",
        "Action: {term} the {name} receptor.",
        "{drug} works because it {term} the {name} receptor.",
    ),
    Attribute.INDICATION: (
        "it is approved for the treatment of {name}.",
        "its indication is {name}.",
        "Indication: {name}.",
        "we give it for {name}.",
    ),
    Attribute.DOSE: (
        "adults receive {amount} mg a day.",
        "the recommended daily dose is {amount} mg.",
        "Dose: {amount} mg a day.",
        "start and stay at {amount} mg a day.",
    ),
    Attribute.HALF_LIFE: (
        "the plasma half-life is {amount} hours.",
        "it is eliminated with a half-life of {amount} hours.",
        "Half-life: {amount} hours.",
        "count on a half-life of {amount} hours.",
    ),
    Attribute.INTERACTION: (
        "taken together with {name}, {drug} {term} the blood level of {name}.",
        "{drug} {term} the concentration of {name} in the blood.",
        "Interaction: {term} the level of {name}.",
        "ask about {name}, because {drug} {term} its level.",
    ),
    Attribute.CAUTION: (
        "{drug} {term} in patients with {name}.",
        "one disease has a rule of its own: in {name}, {drug} {term}.",
        "Caution: {term} in {name}.",
        "if the patient has {name}: {drug} {term}.",
    ),
    Attribute.MILK: (
        "the substance {term} into breast milk.",
        "in nursing mothers, it {term} into the milk.",
        "Lactation: {term} into breast milk.",
        "for nursing mothers: it {term} into the milk.",
    ),
    Attribute.ANTIDOTE: (
        "an overdose is treated with {name}.",
        "poisoning is treated with its antidote, {name}.",
        "Antidote: {name}.",
        "keep {name} at hand, it is the antidote.",
    ),
}

#: First sentence of a passage, by style; it names the drug and the aspect.
OPENINGS: Sequence[str] = (
    "this section describes the {aspect} of {drug}.",
    "{drug} has the following {aspect}.",
    "{drug}, {aspect}.",
    "ward note on {drug}: its {aspect}.",
)

#: Stems that name the drug and ask for one part of a fact.
DIRECT: Mapping[Attribute, Sequence[str]] = {
    Attribute.CLASS: (
        "To which class does {drug} belong?",
        "A patient takes {drug}. Which class of drugs is it from?",
        "Of which class is {drug} a member?",
    ),
    Attribute.MECHANISM: (
        "What is the mechanism of action of {drug}?",
        "How does {drug} act?",
        "By which mechanism does {drug} have its effect?",
    ),
    Attribute.INDICATION: (
        "What is {drug} used for?",
        "Which disease is treated with {drug}?",
        "A patient is prescribed {drug}. Which disease is that a treatment for?",
    ),
    Attribute.DOSE: (
        "What is the usual daily dose of {drug} in adults?",
        "How much {drug} does an adult receive a day?",
        "An adult is started on {drug}. Which daily dose is usual?",
    ),
    Attribute.HALF_LIFE: (
        "What is the half-life of {drug}?",
        "After how many hours has the level of {drug} fallen by half?",
        "How long is the half-life of {drug} in plasma?",
    ),
    Attribute.INTERACTION: (
        "Which drug's blood level does {drug} change, and how?",
        "A patient who takes several drugs is started on {drug}. Which level changes, and how?",
        "What is the interaction of {drug}?",
    ),
    Attribute.CAUTION: (
        "In which disease is there a rule for giving {drug}, and which?",
        "What must be kept in mind about other diseases before {drug} is given?",
        "Which caution holds for {drug}?",
    ),
    Attribute.MILK: (
        "A nursing mother takes {drug}. What holds for her milk?",
        "Does {drug} reach breast milk?",
        "What is known of {drug} and breast milk?",
    ),
    Attribute.ANTIDOTE: (
        "What is the antidote of {drug}?",
        "A patient took too much {drug}. What reverses its effects?",
        "Which substance is given in an overdose of {drug}?",
    ),
}

#: Stems that name something and ask which drug it is true of.
REVERSED: Mapping[Attribute, Sequence[str]] = {
    Attribute.CLASS: (
        "Which of these drugs belongs to the {name}?",
        "Which of these is one of the {name}?",
        "A drug from the class of the {name} is wanted. Which of these is one?",
    ),
    Attribute.INDICATION: (
        "Which of these drugs is used to treat {name}?",
        "A patient has {name}. Which of these drugs is a treatment for it?",
        "Which of these drugs is approved for {name}?",
    ),
    Attribute.ANTIDOTE: (
        "The antidote {name} reverses which of these drugs?",
        "An overdose was treated with {name}. Which of these drugs was it?",
        "For which of these drugs is {name} the antidote?",
    ),
}

#: What an option says of a fact, without the drug.
OPTIONS: Mapping[Attribute, str] = {
    Attribute.CLASS: "the {name}",
    Attribute.MECHANISM: "it {term} the {name} receptor",
    Attribute.INDICATION: "{name}",
    Attribute.DOSE: "{amount} mg",
    Attribute.HALF_LIFE: "{amount} hours",
    Attribute.INTERACTION: "it {term} the level of {name}",
    Attribute.CAUTION: "it {term} in {name}",
    Attribute.MILK: "it {term} into the milk",
    Attribute.ANTIDOTE: "{name}",
}


@dataclass(frozen=True, slots=True)
class Frame:
    """What stands around the claims of a trace."""

    name: str
    opening: str
    before: str  # of each claim; {number} counts from 1
    between: str
    closing: str  # {letter}, {option}


#: A trace names what it has chosen where `eval` and a reader look for it: at its end.
FRAMES: Sequence[Frame] = (
    Frame("steps", "", "Step {number}: ", "\n", "\nSo the answer is ({letter}) {option}."),
    Frame("prose", "Let us think about it. ", "", " ", " Therefore the answer is {letter}: {option}."),
    Frame("list", "What is known:\n", "- ", "\n", "\nAnswer: {letter}. {option}"),
    Frame("recall", "I recall the following. ", "", " ", " Among the options, this fits {letter}, {option}."),
)
