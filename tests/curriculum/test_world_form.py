"""Without the corpus, right and wrong traces cannot be told apart: what can be learned from their form is worth nothing.

Two readers are trained on the labels of three training worlds and tested on three test worlds. One sees the words; the other sees
each invented name as a number in order of its first mention, so that it can learn from who is mentioned where, and how often.
"""

import re
from collections.abc import Callable

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from worlds import all_traces

from curriculum.closed_world.names import Kind
from curriculum.closed_world.traces import Reasoned
from curriculum.closed_world.world import Recipe, World, make_world
from curriculum.faults import Side
from eval.metrics.discrimination import auroc
from eval.metrics.intervals import Estimate, clustered_bootstrap

Reader = Callable[[World, Reasoned], str]
Seen = list[tuple[World, Reasoned]]


def as_words(_: World, trace: Reasoned) -> str:
    options = " ".join(f"option {letter} {text}" for letter, text in trace.asked.options.items())
    return f"{trace.asked.stem} {options} trace {trace.reasoning}"


def as_structure(world: World, trace: Reasoned) -> str:
    known = {name: kind for kind in Kind for name in world.names[kind]}
    met: dict[str, str] = {}

    def numbered(found: re.Match[str]) -> str:
        word = found[0].lower()
        return met.setdefault(word, f"{known[word]}{len(met)}") if word in known else word

    return re.sub(r"[A-Za-z]+", numbered, as_words(world, trace))


def seen(side: Side, seeds: range, questions: int) -> Seen:
    recipe = Recipe(drugs=200, questions=questions)
    worlds = [make_world(side, recipe.model_copy(update={"seed": seed})) for seed in seeds]
    return [(world, trace) for world in worlds for trace in all_traces(world)]


@pytest.fixture(scope="module")
def train() -> Seen:
    return seen(Side.TRAIN, range(3), 400)


@pytest.fixture(scope="module")
def test() -> Seen:
    return seen(Side.TEST, range(3), 500)


def told_apart(train: Seen, test: Seen, read: Reader) -> Estimate:
    words = CountVectorizer(ngram_range=(1, 3), min_df=5, token_pattern=r"\w+")
    fitted = LogisticRegression(C=0.05, max_iter=2000)
    fitted.fit(words.fit_transform(read(*one) for one in train), [trace.label for _, trace in train])
    scores = fitted.predict_proba(words.transform(read(*one) for one in test))[:, 1]
    labels = np.array([trace.label for _, trace in test], dtype=np.int64)
    return clustered_bootstrap(
        auroc, labels, scores, [f"{world.recipe.seed} {trace.asked.id}" for world, trace in test]
    )


@pytest.mark.parametrize("read", [as_words, as_structure])
def test_form_tells_nothing(train: Seen, test: Seen, read: Reader) -> None:
    found = told_apart(train, test, read)
    assert found.low <= 0.5 <= found.high, found
    assert found.high < 0.52, found  # else chance would be no finding


def test_the_same_readers_find_what_can_be_told(train: Seen, test: Seen) -> None:
    def with_a_habit(world: World, trace: Reasoned) -> str:
        """Wrong traces that hesitate once in four times."""
        hesitant = trace.label == 0 and trace.id.endswith("#01")
        return as_structure(world, trace) + (" hmm" if hesitant else "")

    assert told_apart(train, test, with_a_habit).low > 0.55
