"""A labelled case as a row of verl's data set, and back. Pure functions."""

from collections.abc import Mapping
from typing import Any, Literal

from verifier.prompt import Prompt
from verifier.types import Case

AGENT = "medverify_judge"  # the agent loop that runs such a row
CASE = "case"  # key of `extra_info`


def row_of(
    case: Case, label: Literal[0, 1], prompt: Prompt, *, index: int, source: str, told: Mapping[str, str]
) -> dict[str, Any]:
    """A row of the parquet file that verl reads.

    The case travels as JSON: Arrow gives every row of a column the same keys, so options would come back with nulls. `prompt` is
    what verl measures and logs; the agent loop renders and tokenises the case itself.

    Args:
        case: what is judged.
        label: 1 if its trace is right.
        prompt: the judge's.
        index: place in the file; verl tells the rollouts of one prompt by it.
        source: by which verl's metrics are told apart.
        told: what else is kept of it.
    """
    return {
        "data_source": source,
        "agent_name": AGENT,
        "prompt": [{"role": "user", "content": "".join(prompt.pieces(case))}],
        "ability": "verification",
        "reward_model": {"style": "rule", "ground_truth": str(label)},
        "extra_info": {"index": index, CASE: case.model_dump_json(exclude_none=True), **told},
    }


def case_of(row: Mapping[str, Any]) -> Case:
    """The case of a row.

    Raises:
        ValueError: `extra_info` holds none.
    """
    written = (row.get("extra_info") or {}).get(CASE)
    if written is None:
        raise ValueError(f"extra_info has no {CASE!r}: make the data with `medverify verl filter`")
    return Case.model_validate_json(written)


def label_of(row: Mapping[str, Any]) -> Literal[0, 1]:
    """The gold label of a row.

    Raises:
        ValueError: it is neither "0" nor "1".
    """
    given = (row.get("reward_model") or {}).get("ground_truth")
    if given == "0":
        return 0
    if given == "1":
        return 1
    raise ValueError(f"reward_model.ground_truth is {given!r}; expected '0' or '1'")
