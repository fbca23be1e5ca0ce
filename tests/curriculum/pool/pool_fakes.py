"""Examples made up on the spot."""

from collections.abc import Sequence

from hypothesis import strategies as st

from curriculum.pool.example import Example, Label
from verifier.types import Case, Question, Trace


def example(
    name: str,
    label: Label,
    question: str = "q",
    source: str = "s",
    *,
    trace: str | None = None,
    options: dict[str, str] | None = None,
    answer: str | None = None,
    asked: str | None = None,
) -> Example:
    """An example whose texts follow from its names, so that different names are different texts."""
    case = Case(
        id=f"{source}/{name}",
        question=Question(text=asked or f"Question {question} of {source}?", options=options),
        trace=Trace(text=trace or f"Reasoning {name}."),
    )
    return Example(case, label, question, source, answer=answer)


@st.composite
def examples(draw: st.DrawFn, sources: Sequence[str] = ("a", "b")) -> list[Example]:
    """Up to 40 examples of some sources and a few questions each, in any mixture of labels."""
    rows = draw(st.lists(st.tuples(st.sampled_from(sources), st.integers(0, 4), st.sampled_from((0, 1))), max_size=40))
    return [example(f"{number}", label, f"{q}", source) for number, (source, q, label) in enumerate(rows)]
