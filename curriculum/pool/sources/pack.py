"""Question and trace files as a source: `medverify world`, `medverify swapped-facts` and others write them."""

from typing import Annotated, Literal

from pydantic import Field

from configs.settings import Place
from curriculum.pool.errors import PoolError
from curriculum.pool.example import Example
from curriculum.pool.sources.base import SourceRows, SourceSettings
from verifier.packs import PackError, read_pack


class PackSource(SourceSettings):
    """`PREFIX.questions.jsonl` and `PREFIX.traces.jsonl`, each also as `.gz`."""

    kind: Literal["pack"]
    prefix: Annotated[Place, Field(description="Path of both files without their endings.")]


def read_pack_source(settings: PackSource, name: str) -> SourceRows:
    """The labelled traces of a pack; those with `trace_label` null are left out and counted.

    Raises:
        PoolError: the pack cannot be read.
    """
    try:
        cases = read_pack(settings.prefix)
    except PackError as error:
        raise PoolError(f"source {name!r}: {error}") from error
    examples = [
        Example(
            case=one.case.model_copy(update={"id": f"{name}/{one.case.id}"}),
            label=one.label,
            question_id=one.question_id,
            source=name,
            generator=one.generator,
            answer=one.gold,
        )
        for one in cases
        if one.label is not None
    ]
    return SourceRows(examples, unlabelled=len(cases) - len(examples))
