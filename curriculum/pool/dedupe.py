"""One example for each text, and none for a text that is labelled both ways."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from curriculum.pool.example import Example, text_key


@dataclass(frozen=True, slots=True)
class Distinct:
    """Examples whose texts differ."""

    by_key: Mapping[str, Example]  # by `text_key`
    duplicates: Counter[str]  # left out because the same text is kept, by source
    contradictory: Counter[str]  # left out because the same text has the other label too, by source


def distinct(examples: Iterable[Example]) -> Distinct:
    """Keep one example of each text. Which one follows from the examples, not from their order."""
    alike: dict[str, list[Example]] = {}
    for example in examples:
        alike.setdefault(text_key(example.case), []).append(example)
    by_key, duplicates, contradictory = dict[str, Example](), Counter[str](), Counter[str]()
    for key, group in alike.items():
        if len({example.label for example in group}) > 1:
            contradictory.update(example.source for example in group)
            continue
        first, *others = sorted(group, key=_named)
        by_key[key] = first
        duplicates.update(example.source for example in others)
    return Distinct(by_key, duplicates, contradictory)


def _named(example: Example) -> tuple[str, str, str, str]:
    return example.source, example.question_id, example.case.id, example.generator
