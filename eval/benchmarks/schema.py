"""What a benchmark's row must be, whoever published it and in whatever columns."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from verifier.types import NonEmpty, OptionKey

RowId = Annotated[str, StringConstraints(min_length=1, max_length=400, pattern=r"^\S+$")]


class BenchmarkError(ValueError):
    """A benchmark that cannot be read or is not what it should be; the message names the place and the fix."""


class BenchmarkQuestion(BaseModel):
    """A multiple-choice question with its gold answer."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: RowId
    dataset: NonEmpty
    split: NonEmpty
    question: NonEmpty
    contexts: Annotated[list[NonEmpty] | None, Field(description="Texts that the question is about.")] = None
    options: Annotated[dict[OptionKey, NonEmpty], Field(min_length=2)]
    answer: OptionKey
    meta: Annotated[dict[str, Any], Field(description="What else the publisher says of it.")] = {}

    @model_validator(mode="after")
    def _gold_is_an_option(self) -> Self:
        if self.answer not in self.options:
            raise ValueError(f"the answer {self.answer!r} is not among the options {', '.join(self.options)}")
        return self

    def question_row(self) -> dict[str, Any]:
        """The row of a pack's question file."""
        return {**self.model_dump(exclude_none=True), "answer_text": self.options[self.answer]}


class PlantedError(BaseModel):
    """A clinical text that holds one planted error or none: a judged case without a generator."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: RowId
    dataset: NonEmpty
    split: NonEmpty
    text: NonEmpty
    label: Annotated[Literal[0, 1], Field(description="1: free of errors.")]
    error_type: str | None = None
    error_sentence_id: Annotated[int | None, Field(ge=0)] = None
    error_sentence: str | None = None
    corrected_sentence: str | None = None

    @model_validator(mode="after")
    def _says_where(self) -> Self:
        if (self.label == 0) != (self.error_sentence_id is not None):
            raise ValueError("a text with an error says which sentence it is in, and one without does not")
        return self

    def question_row(self) -> dict[str, Any]:
        """The row of a pack's question file: all texts are judged by the same question."""
        return {"id": self.id, "dataset": self.dataset, "split": self.split, "question": CHECK_TEXT}

    def trace_row(self) -> dict[str, Any]:
        """The row of a pack's trace file: the text is the reasoning, its label whether it is free of errors."""
        where = self.model_dump(include={"error_type", "error_sentence_id", "error_sentence", "corrected_sentence"})
        return {
            "qid": self.id,
            "trace_id": self.id,
            "generator": self.dataset,
            "mode": "clinical text",
            "reasoning": self.text,
            "pred": None,
            "gold": None,
            "trace_label": self.label,
            **where,
        }


#: The question of every clinical text.
CHECK_TEXT = (
    "Is this clinical text free of medical errors? The diagnosis, the treatment, the management and the causal organism that it "
    "names must fit the findings that it reports."
)

Row = BenchmarkQuestion | PlantedError


def check_rows(rows: Iterable[Row], name: str, expected: int | None) -> list[Row]:
    """The rows, after a look at the whole: unique ids, and as many as the benchmark has.

    Args:
        rows: in their order.
        name: of the benchmark, for messages.
        expected: how many there must be; None where only a part is read.

    Raises:
        BenchmarkError: an id comes twice, or the number is another.
    """
    seen: dict[str, int] = {}
    kept = []
    for number, row in enumerate(rows, start=1):
        first = seen.setdefault(row.id, number)
        if first != number:
            raise BenchmarkError(f"{name}: rows {first} and {number} have the same id {row.id!r}")
        kept.append(row)
    if not kept:
        raise BenchmarkError(f"{name}: no row was found")
    if expected is not None and len(kept) != expected:
        raise BenchmarkError(
            f"{name}: expected {expected} rows, found {len(kept)}: another split, another release, or a part of it; "
            "--partial accepts a part, and the pack then says how many rows it has"
        )
    return kept
