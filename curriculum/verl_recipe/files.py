"""The folder of a filtered iteration: the parquet file that verl reads, what was seen when it was made, the state of the pool."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from configs import strict_json
from configs.appended import ResumeError
from configs.durable import publish, write_whole
from curriculum.selecting import Selection
from curriculum.verl_recipe.rows import row_of
from verifier.prompt import Prompt
from verifier.types import Case

TRAIN, VALIDATION, REPORT, POOL, LOG = (
    "train.parquet",
    "validation.parquet",
    "filter.json",
    "pool.json",
    "candidates.jsonl",
)
_BEGUN = "begun.json"  # what a selection depends on, and where its pool stood when it began


class Labelled(Protocol):
    """An example of `curriculum.pool`."""

    @property
    def case(self) -> Case: ...
    @property
    def label(self) -> Literal[0, 1]: ...
    @property
    def question_id(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def generator(self) -> str: ...


def write_examples(path: Path, examples: Iterable[Labelled], prompt: Prompt) -> int:
    """Write examples as verl's data set; the file is whole or absent. Returns how many there are."""
    import pyarrow
    import pyarrow.parquet

    rows = [
        row_of(
            one.case,
            one.label,
            prompt,
            index=index,
            source=one.source,
            told={"question_id": one.question_id, "generator": one.generator},
        )
        for index, one in enumerate(examples)
    ]
    temporary = path.with_name(f".{path.name}.part")
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), temporary)
    publish(temporary, path)
    return len(rows)


def read_rows(path: Path) -> Sequence[Mapping[str, Any]]:
    """Rows of such a data set."""
    import pyarrow.parquet

    rows: list[Mapping[str, Any]] = pyarrow.parquet.read_table(path).to_pylist()
    return rows


def begin(folder: Path, made_with: Mapping[str, Any], pool_state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Begin a selection in a folder, or go on with it; the state of the pool that it begins with.

    Args:
        made_with: all that the selection depends on beside the pool.
        pool_state: of the pool as it stands now.

    Raises:
        ResumeError: the folder holds a selection that was begun otherwise.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path, told = folder / _BEGUN, {"made_with": dict(made_with), "pool": dict(pool_state)}
    if not path.exists():
        write_whole(path, json.dumps(told, indent=2) + "\n")
    before = strict_json.parse(path.read_bytes())
    if before != json.loads(json.dumps(told)):
        kept = {**before.get("made_with", {}), "pool": before.get("pool")}
        differing = [name for name, value in {**made_with, "pool": pool_state}.items() if kept.get(name) != value]
        raise ResumeError(f"{folder} was begun with another {', '.join(differing)}; give another folder, or remove it")
    return dict(before["pool"])


def write_report(folder: Path, found: Selection, made_with: Mapping[str, Any]) -> Mapping[str, Any]:
    """Write down what was kept, what was refused and why, and what decided it."""
    told = {
        "kept": {str(label): sum(one.label == label for one in found.examples) for label in (0, 1)},
        "seen": found.admission.seen,
        "passed": found.admission.kept,  # more than kept where the last wave brought more than was wanted
        "refused": {str(reason): count for reason, count in sorted(found.admission.refused.items())},
        "policy_tokens": found.tokens,
        "pool_spent": found.spent,
        "metrics": dict(found.admission.metrics()),
        "made_with": dict(made_with),
    }
    write_whole(folder / REPORT, json.dumps(told, indent=2) + "\n")
    return told
