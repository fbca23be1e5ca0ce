"""What a trainer sends as a prompt and a response, and what of it is the question and the trace.

Trainers send messages, or one text with the marks of a chat template in it. The question is the last message of the user; the
trace is what the policy wrote. Marks of the common templates are known; a text without any is taken as it is.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

#: How a user's turn begins, and how it may end, in the template of each family of models.
_USER_TURNS = (
    ("<|im_start|>user\n", ("<|im_end|>",)),  # ChatML: Qwen, SmolLM
    ("<|start_header_id|>user<|end_header_id|>", ("<|eot_id|>",)),  # Llama 3
    ("<start_of_turn>user\n", ("<end_of_turn>",)),  # Gemma
    ("<|start|>user<|message|>", ("<|end|>",)),  # gpt-oss
    ("<|user|>", ("<|end|>", "</s>", "<|assistant|>")),  # Phi, Zephyr, GLM
    ("[INST]", ("[/INST]",)),  # Llama 2, Mistral
    ("<｜User｜>", ("<｜Assistant｜>",)),  # noqa: RUF001 - DeepSeek writes full-width bars
)
_SYSTEM_ENDS = "<</SYS>>"  # Llama 2 writes what the system says into the first turn of the user
#: Tokens that a tokenizer adds and a policy does not mean.
_MARKS = re.compile(
    r"<\|[A-Za-z0-9_]{1,40}\|>|<｜[^｜<>]{1,40}｜>|</?s>|<(?:bos|eos|pad|unk)>|<(?:start|end)_of_turn>"  # noqa: RUF001
)
_LONGEST_MARK = 44  # characters
_SPACE = re.compile(r"\s+")
_STRIDE = 4096  # characters looked at together for white space at the end


def text_of(content: Any) -> str:
    """The text of a message's content: a text, or a list of parts, those without text left out."""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        return ""
    parts = (part.get("text") if isinstance(part, Mapping) else part for part in content)
    return "".join(part for part in parts if isinstance(part, str))


def question_of(prompt: Any) -> str:
    """The last message of the user: of a list of messages, or of a text in a chat template; else the text as it is.

    Empty if there is none.
    """
    if isinstance(prompt, list):
        said = [message for message in prompt if isinstance(message, Mapping) and message.get("role") == "user"]
        return text_of(said[-1].get("content")).strip() if said else ""
    if not isinstance(prompt, str):
        return ""
    for opening, closings in _USER_TURNS:
        _, found, turn = prompt.rpartition(opening)
        if found:
            ends = [end for end in map(turn.find, closings) if end >= 0]
            return turn[: min(ends, default=len(turn))].rpartition(_SYSTEM_ENDS)[2].strip()
    return trimmed(prompt)


def trimmed(text: str) -> str:
    """A text without the marks of a template, and white space, around it."""
    start, end = 0, len(text)
    while found := _SPACE.match(text, start, end) or _MARKS.match(text, start, end):
        start = found.end()
    while start < end:
        if text[end - 1].isspace():
            piece = text[max(start, end - _STRIDE) : end]
            end -= len(piece) - len(piece.rstrip())
            continue
        last = text.rfind("<", max(start, end - _LONGEST_MARK), end)
        if last >= 0 and _MARKS.fullmatch(text, last, end):
            end = last
        else:
            break
    return text[start:end]


def response_in(query: str, prompt: str) -> str | None:
    """What follows the prompt in a text that holds both; None if the prompt is not in it.

    The text may have been decoded without the marks that the prompt has.
    """
    for whole, start in ((query, prompt), (_MARKS.sub("", query), _MARKS.sub("", prompt))):
        before, found, response = whole.partition(start) if start else ("", "", "")
        if found and not _MARKS.sub("", before).strip():
            return trimmed(response)
    return None


def answer_text(output: Any) -> str:
    """What an assistant said in output items of OpenAI's Responses API: its messages, without reasoning and tool calls."""
    said = [
        text_of(item.get("content")).strip()
        for item in (output if isinstance(output, Sequence) and not isinstance(output, str) else ())
        if isinstance(item, Mapping)
        and item.get("type", "message") == "message"
        and item.get("role", "assistant") == "assistant"
    ]
    return "\n\n".join(filter(None, said))
