"""What `/v1/rerank` takes and gives: the form of Cohere and Jina, which vLLM and TEI speak as well."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, Strict, model_validator
from pydantic.config import JsonDict

from serve.schemas import Deadline
from verifier.types import Case, NonEmpty, Question, Trace

_EXAMPLE: JsonDict = {
    "query": "What does warfarin inhibit?",
    "documents": ["Warfarin binds thrombin.", {"text": "Warfarin blocks the recycling of vitamin K."}],
    "top_n": 1,
    "return_documents": True,
}


class Document(BaseModel):
    """A trace to be ranked."""

    model_config = ConfigDict(extra="ignore")

    text: NonEmpty

    @model_validator(mode="before")
    @classmethod
    def _from_plain(cls, data: Any) -> Any:
        """A document may be a plain text."""
        return {"text": data} if isinstance(data, str) else data


class RerankRequest(BaseModel):
    """A question and traces to be ordered. Fields that a peer sends and we have no use for are ignored."""

    model_config = ConfigDict(extra="ignore", json_schema_extra={"examples": [_EXAMPLE]})

    query: Annotated[NonEmpty, Field(description="The question, with its options if there are any.")]
    documents: Annotated[
        list[Annotated[Document, Field(json_schema_extra={"description": "A text, or an object with `text`."})]],
        Field(fail_fast=True, min_length=1),
    ]
    top_n: Annotated[
        Annotated[int, Strict()] | None, Field(ge=1, description="Only so many of the best; null: all.")
    ] = None
    return_documents: Annotated[bool, Strict()] | None = False
    model: Annotated[str | None, Field(description="Taken and ignored: there is one judge.")] = None

    deadline_s: Deadline = None

    @property
    def cases(self) -> list[Case]:
        """What there is to judge."""
        question = Question(text=self.query)
        return [
            Case(id=str(place), question=question, trace=Trace(text=document.text))
            for place, document in enumerate(self.documents)
        ]


class Text(BaseModel):
    """A document, given back."""

    text: str


class Ranked(BaseModel):
    """A document's place among the others."""

    index: Annotated[int, Field(ge=0, description="Its position in the request.")]
    relevance_score: Annotated[float, Field(ge=0, le=1, description="The judge's p that the trace is free of errors.")]
    document: Annotated[Text | None, Field(description="With `return_documents`; else it is left out.")] = None


class Tokens(BaseModel):
    """What the ranking cost, in tokens of the judge."""

    total_tokens: int


class Ranking(BaseModel):
    """Documents, best first. Equal scores are ordered by content."""

    id: str
    model: str
    results: list[Ranked]
    usage: Tokens
