"""From a trainer's columns to what the service is asked: pure functions over texts, messages and dictionaries.

What is judged is what the policy wrote. Tool results among its messages are not its own text, and are left out unless they are
asked for; then they are marked as what they are.
"""

from collections.abc import Mapping, Sequence
from string import ascii_uppercase
from typing import Any

from pydantic import ValidationError

from medverify.replies import TraceItem
from verifier.chat_text import text_of

_TOOL_CHARACTERS = 4000  # of a tool's result that is shown beside the policy's text


EMPTY = "the completion is empty"


class ColumnError(ValueError):
    """A data set has not the columns that it should have; says which, and how to name another."""


def policy_text(completion: Any) -> str:
    """What the policy wrote: a plain completion, or the assistant's messages of a conversation, joined by blank lines."""
    if isinstance(completion, str):
        return completion
    if isinstance(completion, Mapping):
        completion = [completion]
    written = [text_of(message.get("content")) for message in completion if message.get("role") == "assistant"]
    return "\n\n".join(text for text in written if text.strip())


def steps_with_tools(completion: Any) -> list[str]:
    """What the policy wrote and what its tools answered, in order; the latter marked and shortened."""
    if isinstance(completion, str):
        return [completion] if completion.strip() else []
    steps = list[str]()
    for message in [completion] if isinstance(completion, Mapping) else completion:
        text = text_of(message.get("content")).strip()
        if text:
            steps.append(text if message.get("role") == "assistant" else tool_step(text))
    return steps


def tool_step(text: str) -> str:
    """A tool's result as a step of a trace."""
    cut = "" if len(text) <= _TOOL_CHARACTERS else " …"
    return f"[result of the tool, not written by the policy] {text[:_TOOL_CHARACTERS]}{cut}"


def options_of(given: Any) -> dict[str, str] | None:
    """Lettered options from a dictionary, a list of texts, or a list of `{"key", "value"}`; None if there are none.

    Raises:
        ColumnError: it is something else.
    """
    if given is None or (isinstance(given, Sequence) and len(given) == 0):
        return None
    if isinstance(given, Mapping):  # Arrow gives every row the keys of all rows, with null where a row has none
        return {str(key): str(text) for key, text in given.items() if text is not None} or None
    if isinstance(given, Sequence) and not isinstance(given, str):
        if all(isinstance(option, str) for option in given):
            return dict(zip(ascii_uppercase, given, strict=False))
        if all(isinstance(option, Mapping) and {"key", "value"} <= option.keys() for option in given):
            return {str(option["key"]): str(option["value"]) for option in given}
    raise ColumnError(f"options are {given!r:.100}; expected letter to text, a list of texts, or null")


def label_of(given: Any) -> str | None:
    """The right answer, a letter or a text; None if there is none.

    Raises:
        ColumnError: a number, which could count from 0 or from 1.
    """
    if given is None or isinstance(given, str):
        return (given or "").strip() or None
    raise ColumnError(f"the label is {given!r:.80}; expected the letter of an option, or a text")


def column(columns: Mapping[str, Any], name: str, size: int) -> Sequence[Any]:
    """A column, or as many times None.

    Raises:
        ColumnError: it has another length.
    """
    values = columns.get(name)
    if values is None:
        return [None] * size
    if isinstance(values, str) or not isinstance(values, Sequence) or len(values) != size:
        raise ColumnError(f"column {name!r} has not one value for each of the {size} completions")
    return values


def item_of(
    place: int, question: str, trace: str | Sequence[str], options: dict[str, str] | None, label: str | None
) -> TraceItem | str:
    """What the service is asked about one completion, or why it cannot be asked: `EMPTY`, or what is wrong with it."""
    if not (trace.strip() if isinstance(trace, str) else trace):
        return EMPTY
    kept = trace if isinstance(trace, str) else list(trace)
    try:
        return TraceItem(id=str(place), question=question, trace=kept, options=options, label=label)
    except ValidationError as error:
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
