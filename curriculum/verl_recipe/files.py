"""The parquet files that verl reads, and what was seen when they were made."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from configs.durable import publish, write_whole
from curriculum.verl_recipe.filtering import Filtered, Labelled
from curriculum.verl_recipe.rows import row_of
from verifier.prompt import Prompt

TRAIN, REPORT = "train.parquet", "filter.json"


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
    """Rows of a data set of verl's."""
    import pyarrow.parquet

    rows: list[Mapping[str, Any]] = pyarrow.parquet.read_table(path).to_pylist()
    return rows


def write_report(path: Path, found: Filtered, made_with: Mapping[str, Any]) -> Mapping[str, Any]:
    """Write down what was kept, what was refused and why, and what decided it."""
    told = {
        "kept": {str(label): sum(one.label == label for one in found.kept) for label in (0, 1)},
        "seen": found.admission.seen,
        "refused": {str(reason): count for reason, count in sorted(found.admission.refused.items())},
        "pool_spent": found.spent,
        "metrics": dict(found.admission.metrics()),
        "made_with": dict(made_with),
    }
    write_whole(path, json.dumps(told, indent=2) + "\n")
    return told
