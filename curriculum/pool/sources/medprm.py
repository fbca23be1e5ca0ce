"""Med-PRM's training set: questions with sampled solutions, of which only the label of the whole trace is used.

The authors publish one JSON array, `1_train_dataset.json`, about 11,700 questions long:

    question_id   number within its data_source
    data_source   med_qa, …
    question      text
    options       list of texts, lettered from A
    correct_answer  letter
    related_docs  retrieved documents; not used
    solutions     list of
        solution                 the trace, in lines "Step N: …"
        prm_processed_solution   the same in one line, with the marker " ки" after each step
        orm_processed_solution   the same with one marker at the end
        answer                   letter that the trace ends with
        orm_label                1 if that is the right one, else 0: the trace's label
        prm_hard_label, prm_soft_label, prm_gemini_label, prm_llama_label   labels of steps; not used

Read off public code that works with the set (github eth-medical-ai-lab/Med-PRM and forks of it) and samples that were
published with such code; the set itself could not be looked at where this was written. A row with other columns is refused.
"""

import string
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError, model_validator

from configs.catalogue import Commit
from configs.settings import Place
from curriculum.pool.errors import PoolError
from curriculum.pool.example import Example
from curriculum.pool.sources.base import SourceRows, SourceSettings, Told
from retrieval.passage import SourceError
from retrieval.sources.hub import streamed
from verifier.types import Case, NonEmpty, Question, Trace

REPOSITORY = "dmis-lab/llama-3.1-medprm-reward-training-set"
GENERATOR = "Llama-3.1-8B-Instruct"
_MARKER = " ки"
_LETTERS = string.ascii_uppercase


class MedPrmSource(SourceSettings):
    """The set on the hub at a commit, or a copy of it in a folder."""

    kind: Literal["medprm"]
    revision: Annotated[
        Commit | None,
        Field(description=f"Commit of {REPOSITORY}, all 40 digits; null: the hub is refused unless one is given."),
    ] = None
    folder: Annotated[Place | None, Field(description="A copy of the repository; read in place of the hub.")] = None
    licence: Annotated[Told, Field(description="What the hub's card says.")] = "MIT"
    provenance: Annotated[Told, Field(description="Who published them where, and what made them.")] = (
        f"hub {REPOSITORY}: MedQA questions, solutions of {GENERATOR}"
    )

    @model_validator(mode="after")
    def _from_one_place(self) -> "MedPrmSource":
        if self.revision and self.folder:
            raise ValueError("give either `revision`, for the hub, or `folder`, for a copy")
        return self


class _Solution(BaseModel):
    solution: str | None = None
    prm_processed_solution: str | None = None
    orm_label: Literal[0, 1] | None

    @property
    def trace(self) -> str:
        """The reasoning as its model wrote it; empty where there is none."""
        return (self.solution or self.prm_processed_solution or "").replace(_MARKER, "").strip()


class _Row(BaseModel):
    question_id: int | str
    data_source: str = "med_qa"
    question: NonEmpty
    options: Annotated[list[NonEmpty], Field(max_length=len(_LETTERS))] | None = None
    correct_answer: str | None = None
    solutions: list[_Solution]


def read_medprm_source(settings: MedPrmSource, name: str) -> SourceRows:
    """The traces of Med-PRM's training set; those without a label or a text are left out and counted.

    Raises:
        PoolError: neither commit nor folder is given, the set cannot be read, or a row has not its columns.
    """
    if settings.folder is None and settings.revision is None:
        raise PoolError(
            f"source {name!r}: the hub is read only at a pinned commit; look up the one you mean on the page of {REPOSITORY} "
            "and give all 40 digits as `revision`, or a copy as `folder`"
        )
    place = REPOSITORY if settings.folder is None else str(settings.folder)
    try:
        return adapted(streamed(place, revision=settings.revision), name)
    except SourceError as error:
        raise PoolError(f"source {name!r}: {error}; download the set and give its `folder`") from error


def adapted(rows: Iterable[Mapping[str, Any]], name: str) -> SourceRows:
    """Rows in the set's columns as examples of the source `name`.

    Raises:
        PoolError: a row has not these columns; the message names row and column.
    """
    examples, left_out = list[Example](), 0
    for number, columns in enumerate(rows, start=1):
        try:
            row = _Row.model_validate(columns)
        except ValidationError as error:
            faults = "; ".join(f"{'.'.join(map(str, item['loc'])) or 'row'}: {item['msg']}" for item in error.errors())
            raise PoolError(f"source {name!r}, row {number}: {faults}") from error
        own = list(_examples(row, number, name))
        examples += own
        left_out += len(row.solutions) - len(own)
    return SourceRows(examples, left_out)


def _examples(row: _Row, number: int, name: str) -> Iterator[Example]:
    options = dict(zip(_LETTERS, row.options or (), strict=False)) or None
    question = Question(text=row.question, options=options)
    question_id = f"{row.data_source}-{row.question_id}"
    for place, solution in enumerate(row.solutions, start=1):
        if solution.orm_label is None or not solution.trace:
            continue
        yield Example(
            case=Case(id=f"{name}/{number}-{question_id}#{place}", question=question, trace=Trace(text=solution.trace)),
            label=solution.orm_label,
            question_id=question_id,
            source=name,
            generator=GENERATOR,
            answer=row.correct_answer,
        )
