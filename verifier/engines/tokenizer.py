"""A Hugging Face tokenizer behind the small protocol of `base.Tokenizer`."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

_MARK = "\ue000"  # a private-use character that no template contains


class HFTokenizer:
    """Reads text as text: an added token's spelling inside it, special or not, never becomes that token."""

    def __init__(self, source: Path | Any) -> None:
        """Read a folder's tokenizer, or take one that transformers has read already."""
        if isinstance(source, Path):
            from transformers import AutoTokenizer

            source = AutoTokenizer.from_pretrained(source)
        self._tokenizer: Any = source
        self._added = {
            token for token, added in self._tokenizer.added_tokens_decoder.items() if not _blank(added.content)
        }
        self._plain = _without_added_tokens(self._tokenizer)
        self.end_ids = frozenset(
            token for token in (self._tokenizer.eos_token_id, self._tokenizer.pad_token_id) if token is not None
        )

    def encode(self, text: str) -> list[int]:
        ids = self._read(text)
        if self._added.isdisjoint(ids):
            return ids
        return [part for token in ids for part in (self._spelt(token) if token in self._added else (token,))]

    def _read(self, text: str) -> list[int]:
        if self._plain is not None:
            return self._plain.encode(text, add_special_tokens=False).ids  # type: ignore[no-any-return]
        return self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)  # type: ignore[no-any-return]

    def _spelt(self, token: int) -> Iterable[int]:
        """An added token that the vocabulary knows as an ordinary piece of text as well, letter by letter."""
        letters = self._tokenizer.convert_ids_to_tokens(token)
        return (part for letter in letters for part in self._read(letter) if part not in self._added)

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
        return self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=False)  # type: ignore[no-any-return]


def _without_added_tokens(tokenizer: Any) -> Any:
    """The same tokenizer without any added token, over the same vocabulary in memory; None if it is not of `tokenizers`.

    `split_special_tokens` would leave out those alone that are marked as special, which tags such as `<tool_call>` are not.
    A tokenizer written in Python leaves out all of them.
    """
    whole = getattr(tokenizer, "backend_tokenizer", None)
    if whole is None:
        return None
    from tokenizers import Tokenizer

    plain = Tokenizer(whole.model)
    if whole.normalizer is not None:
        plain.normalizer = whole.normalizer
    if whole.pre_tokenizer is not None:
        plain.pre_tokenizer = whole.pre_tokenizer
    plain.add_tokens(
        [
            added
            for token, added in tokenizer.added_tokens_decoder.items()
            if _blank(added.content) and whole.model.token_to_id(added.content) == token
        ]
    )
    return plain


def _blank(text: str) -> bool:
    """Runs of blanks are layout and speak to nobody, so they may be added tokens: some vocabularies have no others for them."""
    return text.replace("\u2581", " ").isspace()
