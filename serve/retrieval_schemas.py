"""What the retrieval routes take and give: the protocols that trainers' clients already speak."""

import json
import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import to_json

from configs.strict_json import parse_unique
from retrieval.local import LocalRetriever
from retrieval.passage import Hit, Passage, QueryError
from serve.errors import MOST_FAULTS, ServiceError, expected_by, unfit, unfit_json

M = TypeVar("M", bound=BaseModel)

DEFAULT_TOPK = 3
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")  # what may be half of a pair of UTF-16
MAX_ACTION_CHARS = 200_000  # an action is one turn of a policy, and a turn of 32,000 tokens has some 130,000 characters


class Retrieve(BaseModel):
    """`queries` for several searches, or `query` for one; fields that are not listed are ignored."""

    model_config = ConfigDict(
        strict=True,
        json_schema_extra={
            "examples": [
                {"queries": ["warfarin mechanism", "anaphylaxis treatment"], "topk": 3, "return_scores": True},
                {"query": "warfarin mechanism", "topk": 3, "return_scores": True},
            ]
        },
    )

    queries: Annotated[
        Annotated[list[str], Field(fail_fast=True)] | None,
        Field(description="Several searches; `result` has a list for each."),
    ] = None
    query: Annotated[str | None, Field(description="One search; `result` has one list.")] = None
    topk: Annotated[int | None, Field(ge=1, description=f"Documents per query; missing or null: {DEFAULT_TOPK}.")] = (
        None
    )
    return_scores: Annotated[bool, Field(description="false: bare documents instead of document and score.")] = False
    deadline_s: Annotated[
        float | None,
        Field(gt=0, strict=False, allow_inf_nan=False, description="Seconds the caller waits; then 503, and no work."),
    ] = None

    partial: Annotated[
        bool | None,
        Field(
            description="Whether an answer without the rows that cannot be searched just now will do, which then says so; "
            "missing: as the service is set."
        ),
    ] = None

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.queries is None) == (self.query is None):
            raise ValueError("expected either `queries` (a list of strings) or `query` (a string)")
        return self

    def asked(self) -> list[str]:
        """The queries, in either dialect."""
        return [self.query] if self.queries is None and self.query is not None else self.queries or []


class Document(Passage):
    """A passage as clients read it."""

    contents: Annotated[str, Field(description="The title in the first line, then the text.")]


class Found(BaseModel):
    """One document of an answer, with `return_scores`."""

    document: Document
    score: float


class Retrieved(BaseModel):
    """An answer; describes what `render` writes."""

    result: Annotated[
        list[list[Found]] | list[list[Document]],
        Field(description="A list for each query, best first; bare documents unless `return_scores`."),
    ]
    partial: Annotated[
        Literal[True] | None, Field(description="Rows could not be searched; not there if all were.")
    ] = None
    missing_rows: Annotated[
        list[tuple[int, int]] | None,
        Field(
            description="These rows, as ranges: the first, and the one behind the last; not there if all were searched."
        ),
    ] = None


class Observe(BaseModel):
    """Actions of a policy, one for each trajectory; all lists have the same length."""

    model_config = ConfigDict(
        strict=True,
        json_schema_extra={
            "examples": [
                {
                    "trajectory_ids": ["t1"],
                    "actions": ["<think>Which target?</think><search>warfarin mechanism</search>"],
                    "extra_fields": [{}],
                    "finish": [False],
                    "is_last_step": [False],
                }
            ]
        },
    )

    trajectory_ids: Annotated[list[str | int], Field(fail_fast=True)]
    actions: Annotated[list[Annotated[str, Field(max_length=MAX_ACTION_CHARS)]], Field(fail_fast=True)]
    extra_fields: Annotated[list[dict[str, Any]], Field(fail_fast=True)] | None = None
    finish: Annotated[list[bool], Field(fail_fast=True)] | None = None
    is_last_step: Annotated[list[bool], Field(fail_fast=True)] | None = None

    @model_validator(mode="after")
    def _same_lengths(self) -> Self:
        for name in ("actions", "extra_fields", "finish", "is_last_step"):
            values = getattr(self, name)
            if values is not None and len(values) != len(self.trajectory_ids):
                raise ValueError(f"{name} has {len(values)} entries, trajectory_ids has {len(self.trajectory_ids)}")
        return self

    def finished(self) -> list[bool]:
        """Which trajectories end here, wherever the client says so."""
        flags = self.finish or [False] * len(self.actions)
        extra = self.extra_fields or [{}] * len(self.actions)
        return [flag or fields.get("finish") is True for flag, fields in zip(flags, extra, strict=True)]


class Refusal(BaseModel):
    """An observation for an action that could not be carried out."""

    obs: str = ""
    invalid_reason: str


class Observations(BaseModel):
    """What each trajectory sees next."""

    observations: list[str | Refusal]
    dones: list[bool]
    valids: list[bool]
    processing_time_ms: float


class RetrievalReady(BaseModel):
    """Known passages were asked for and came back."""

    status: Literal["ready"] = "ready"
    searches_waiting: int


class RetrievalInfo(BaseModel):
    """What is searched here, and how."""

    digest: Annotated[str, Field(description="Same digest, same answers; also in the header X-Index-Digest.")]
    profile: str
    rows: int
    manifest: Annotated[dict[str, Any], Field(description="What the index is made of, without its lists of files.")]
    version: str

    @classmethod
    def of(cls, retriever: LocalRetriever, version: str) -> Self:
        """Args:
        version: of this package.
        """
        manifest = retriever.manifest
        return cls(
            digest=retriever.digest,
            profile=retriever.profile,
            rows=len(retriever.texts),
            manifest=manifest.model_dump(mode="json", exclude={"files", "ranges"}) if manifest else {},
            version=version,
        )


def read_body(model: type[M], body: bytes) -> M:
    """Parse and check a body.

    Raises:
        ServiceError: 422; names each field and what was expected there.
    """
    try:
        data = parse_unique(body.decode())
        if _HALF.search(body):  # a half of a pair by itself is no text, and no index could be asked for it
            json.dumps(data, ensure_ascii=False).encode()
        return model.model_validate(data)
    except ValidationError as error:
        raise unfit(
            [
                {"field": ".".join(map(str, item["loc"])) or "body", "expected": expected_by(item)}
                for item in error.errors(include_url=False, include_input=False, include_context=False)[:MOST_FAULTS]
            ]
        ) from error
    except ValueError as error:
        raise unfit([unfit_json(error)]) from error


def unusable(position: int | None, error: QueryError) -> ServiceError:
    """422 for a query that cannot be searched for; `position` is its place in `queries`."""
    return unfit([{"field": "query" if position is None else f"queries.{position}", "expected": str(error)}])


def document(passage: Passage) -> dict[str, Any]:
    """A passage as clients read it: some take `text`, some the first line of `contents` as the title."""
    title = " ".join(passage.title.split())
    return {**vars(passage), "contents": f"{title}\n{passage.text}"}


def render(found: Sequence[Sequence[Hit]], with_scores: bool, missing: Sequence[tuple[int, int]] = ()) -> bytes:
    """The body of an answer, as JSON.

    One that lacks rows is marked `partial` and names them as ranges, `start` up to and without `stop`.
    """
    if with_scores:
        result = [[{"document": document(hit.passage), "score": hit.score} for hit in hits] for hits in found]
    else:
        result = [[document(hit.passage) for hit in hits] for hits in found]
    return to_json({"result": result} | ({"partial": True, "missing_rows": missing} if missing else {}))
