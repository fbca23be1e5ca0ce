"""Where in a sentence a fact can be swapped for a false one, by rules that read no meaning.

Each rule finds spots: a few letters of the sentence, and the group of texts that may stand there instead. What replaces a spot is
what stood at another spot of its group, never something made up (`curriculum/swapped_facts.py`).
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from curriculum.faults import Fault


@dataclass(frozen=True, slots=True)
class Spot:
    """A place in a sentence, in characters, and what may replace it."""

    fault: Fault
    group: str  # spots of one group can trade what they say
    start: int
    end: int
    says: str


def words(text: str) -> frozenset[str]:
    """The words of a list that is written as a text."""
    return frozenset(text.split())


#: Words that say the opposite of one another; each stands in one pair only.
OPPOSITES: Sequence[tuple[str, str]] = (
    ("increase", "decrease"),
    ("increases", "decreases"),
    ("increased", "decreased"),
    ("increasing", "decreasing"),
    ("higher", "lower"),
    ("high", "low"),
    ("raise", "reduce"),
    ("raises", "reduces"),
    ("more", "less"),
    ("above", "below"),
    ("before", "after"),
    ("early", "late"),
    ("faster", "slower"),
    ("larger", "smaller"),
    ("common", "rare"),
    ("acute", "chronic"),
    ("benign", "malignant"),
    ("dilation", "constriction"),
    ("vasodilation", "vasoconstriction"),
    ("anterior", "posterior"),
    ("superior", "inferior"),
    ("proximal", "distal"),
    ("medial", "lateral"),
    ("afferent", "efferent"),
    ("sympathetic", "parasympathetic"),
    ("dominant", "recessive"),
    ("systolic", "diastolic"),
    ("gain", "loss"),
    ("stimulates", "inhibits"),
    ("stimulate", "inhibit"),
    ("enters", "leaves"),
    ("internal", "external"),
)

#: Verbs that stand alone or with "not"; "does not" is left out, because the verb behind it would have to change.
_VERBS: Mapping[str, str] = {
    "is": "is not",
    "are": "are not",
    "can": "cannot",
    "should": "should not",
    "may": "may not",
    "was": "was not",
}

#: Things of one kind.
KINDS: Mapping[str, frozenset[str]] = {
    "organ": words(
        "liver kidney heart lung brain spleen pancreas stomach bladder uterus prostate thyroid skin colon eye"
    ),
    "organs": words("kidneys lungs ovaries eyes bones joints muscles nerves intestines testes"),
    "hormone": words(
        "insulin glucagon cortisol aldosterone estrogen testosterone progesterone thyroxine epinephrine oxytocin "
        "prolactin renin melatonin"
    ),
    "mineral": words("sodium potassium calcium magnesium iron zinc copper iodine chloride phosphate fluoride"),
    "cells": words(
        "neutrophils lymphocytes monocytes macrophages platelets erythrocytes eosinophils basophils neurons "
        "astrocytes osteoblasts osteoclasts fibroblasts hepatocytes keratinocytes melanocytes"
    ),
    "molecule": words("glucose cholesterol protein hemoglobin collagen albumin bilirubin creatinine lactate oxygen"),
    "germs": words("bacteria viruses fungi parasites protozoa"),
    "person": words("infants children adolescents adults men women"),
    "place": words("chest abdomen neck arm leg pelvis throat"),
    "symptom": words("fever pain nausea vomiting fatigue diarrhea constipation headache cough itching rash"),
}
#: Words of one ending are of one kind: inflammations, tumours, operations, enzymes, classes of drugs.
ENDINGS: Sequence[str] = (
    "itis", "oma", "ectomy", "ase", "emia", "osis", "statin", "olol", "pril", "sartan", "cillin", "mycin", "azole"
)  # fmt: skip
_NOT_OF_AN_ENDING = words(
    "coma trauma disease increase decrease release phase base case please purchase lease ease phrase "
    "chase erase database diagnosis prognosis"
)
_KIND_OF = {word: kind for kind, members in KINDS.items() for word in members}
_OPPOSITE_GROUP = {word: "/".join(pair) for pair in OPPOSITES for word in pair}

_WORD = re.compile(r"(?<![\w-])[a-z]+(?![\w-])")  # lower case: names and first words of sentences are left alone
_NUMBER = re.compile(
    r"(?<![\w.,/\u2013-])\d{1,4}(?:\.\d+)?(?=(?:\s?%|\s(?:percent|years?|months?|weeks?|days?|hours?|minutes?|mg|mL|g|times)\b))"
)
_UNIT = re.compile(r"\s?(%|[A-Za-z]+)")
_VERB = re.compile(r"\b(is|are|can|should|may|was)( not|not)?\b(?! only| (?:n[o']t|just))")
_ARTICLE = re.compile(r"\b(an?) $")


def spots(sentence: str) -> list[Spot]:
    """Every place where one of the rules could swap a fact, by rule, then from left to right."""
    return [spot for rule in _RULES for spot in rule(sentence)]


def _numbers(sentence: str) -> Iterator[Spot]:
    """A number with a unit behind it; others may be years, labels or parts of names."""
    for found in _NUMBER.finditer(sentence):
        unit = _UNIT.match(sentence, found.end())
        if unit:
            group = unit[1].rstrip("s").replace("percent", "%")
            yield Spot(Fault.NUMBER, f"number {group}", found.start(), found.end(), found[0])


def _entities(sentence: str) -> Iterator[Spot]:
    for found in _WORD.finditer(sentence):
        kind = _KIND_OF.get(found[0]) or _ending_of(found[0])
        if kind:
            # "an ulcer" must not become "an wound": what has an article trades with what has the same one.
            article = _ARTICLE.search(sentence, 0, found.start())
            group = f"{kind} {article[1] if article else ''}".strip()
            yield Spot(Fault.ENTITY, group, found.start(), found.end(), found[0])


def _ending_of(word: str) -> str | None:
    if len(word) < 6 or word in _NOT_OF_AN_ENDING:
        return None
    return next((f"-{ending}" for ending in ENDINGS if word.endswith(ending)), None)


def _directions(sentence: str) -> Iterator[Spot]:
    for found in _WORD.finditer(sentence):
        if group := _OPPOSITE_GROUP.get(found[0]):
            yield Spot(Fault.DIRECTION, group, found.start(), found.end(), found[0])


def _negations(sentence: str) -> Iterator[Spot]:
    for found in _VERB.finditer(sentence):
        verb, negated = found[1], found[0] != found[1]
        if not negated or found[0] == _VERBS[verb]:
            yield Spot(Fault.NEGATION, f"{verb}/{_VERBS[verb]}", found.start(), found.end(), found[0])


_RULES: Sequence[Callable[[str], Iterator[Spot]]] = (_numbers, _entities, _directions, _negations)
