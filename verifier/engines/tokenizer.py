"""A Hugging Face tokenizer behind the small protocol of `base.Tokenizer`."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_MARK = "\ue000"  # a private-use character that no template contains


class HFTokenizer:
    """Reads text as text: a special token's spelling inside it never becomes that special token."""

    def __init__(self, path: Path) -> None:
        from transformers import AutoTokenizer

        self._tokenizer: Any = AutoTokenizer.from_pretrained(path)
        self._encoding = threading.Lock()  # how special tokens are read is a state of the tokenizer
        self.end_ids = frozenset(
            token for token in (self._tokenizer.eos_token_id, self._tokenizer.pad_token_id) if token is not None
        )

    def encode(self, text: str) -> list[int]:
        return self._encode(text, split_special_tokens=True)

    def decode(self, ids: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text

    def chat_frame(self) -> tuple[list[int], list[int]]:
        if not self._tokenizer.chat_template:  # a base model: nothing but its start token, if it has one
            start = self._tokenizer.bos_token_id
            return ([] if start is None else [start]), []
        message = [{"role": "user", "content": _MARK}]
        framed = self._tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
        before, after = framed.split(_MARK)
        return self._with_specials(before), self._with_specials(after)

    def _with_specials(self, text: str) -> list[int]:
        return self._encode(text, split_special_tokens=False)

    def _encode(self, text: str, *, split_special_tokens: bool) -> list[int]:
        with self._encoding:
            ids: list[int] = self._tokenizer.encode(
                text, add_special_tokens=False, split_special_tokens=split_special_tokens
            )
        return ids
