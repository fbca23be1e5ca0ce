"""Token sequences for one forward pass with gradients: without padding, and with each shared beginning computed once.

Rollouts of one prompt begin alike. In a row the prompt stands once, followed by the rest of each of its rollouts; attention lets
every rest see the prompt and itself. The numbers are those of the rollouts computed one by one, for fewer tokens.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

ATTENTION = "medverify_rows"


@dataclass(frozen=True, slots=True)
class Written:
    """A whole token sequence, and which of its tokens are to be learned from."""

    ids: tuple[int, ...]
    prompt: int  # of the ids, those of the prompt; at least 1
    policy: tuple[bool, ...]  # of the ids behind the prompt: written by the policy

    @property
    def rest(self) -> int:
        """Tokens behind the prompt."""
        return len(self.ids) - self.prompt


@dataclass(frozen=True, slots=True)
class _Branch:
    """The rest of a sequence in a row."""

    start: int  # where its shared beginning starts
    middle: int  # where that ends
    first: int  # where the rest starts
    end: int


class Row:
    """Sequences laid out for one forward pass; T tokens, P of them written by the policy."""

    def __init__(self, sequences: Sequence[Written], device: torch.device) -> None:
        """Lay sequences out; those that follow one another with the same prompt share it."""
        ids: list[int] = []
        positions: list[int] = []
        self.prompts: list[tuple[int, int]] = []
        self.branches: list[_Branch] = []
        targets: list[int] = []
        sources: list[int] = []  # flat index of the token before each target: its logits predict the target
        previous: tuple[int, ...] | None = None
        for sequence in sequences:
            prompt = sequence.ids[: sequence.prompt]
            if prompt != previous:
                self.prompts.append((len(ids), len(ids) + len(prompt)))
                ids += prompt
                positions += range(len(prompt))
                previous = prompt
            start, middle = self.prompts[-1]
            first = len(ids)
            ids += sequence.ids[sequence.prompt :]
            positions += range(sequence.prompt, len(sequence.ids))
            self.branches.append(_Branch(start, middle, first, len(ids)))
            for offset, learned in enumerate(sequence.policy):
                if learned:
                    targets.append(sequence.ids[sequence.prompt + offset])
                    sources.append(first + offset - 1 if offset else middle - 1)
        self.ids_1T = torch.tensor([ids], device=device)
        self.positions_1T = torch.tensor([positions], device=device)
        self.targets_P = torch.tensor(targets, device=device)
        self.sources_P = torch.tensor(sources, device=device)

    @property
    def tokens(self) -> int:
        """T: what the forward pass computes."""
        return self.ids_1T.shape[1]


def rows(sequences: Sequence[Written], most: int, device: torch.device) -> Iterator[tuple[list[int], Row]]:
    """Divide sequences over rows of at most `most` tokens, in order; a longer sequence has a row of its own.

    Args:
        sequences: those with the same prompt next to one another, or they do not share it.

    Yields:
        The sequences of a row, by their index, and the row.
    """
    taken: list[int] = []
    size = 0
    for index, sequence in enumerate(sequences):
        shares = bool(taken) and _same_prompt(sequences[taken[-1]], sequence)
        added = sequence.rest if shares else len(sequence.ids)
        if taken and size + added > most:
            yield taken, Row([sequences[one] for one in taken], device)
            taken, size, added = [], 0, len(sequence.ids)
        taken.append(index)
        size += added
    if taken:
        yield taken, Row([sequences[one] for one in taken], device)


def _same_prompt(first: Written, second: Written) -> bool:
    return first.ids[: first.prompt] == second.ids[: second.prompt]


def attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, *,
    row: Row, scaling: float | None = None, **extra: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    """Causal attention within each prompt, and of each rest to its prompt and itself.

    Args:
        query: [1, H, T, D]; key, value: [1, Hkv, T, D].

    Returns:
        [1, T, H, D], as transformers expects it.
    """
    if any(extra.get(feature) is not None for feature in ("softcap", "s_aux", "sliding_window")):
        raise ValueError("this model caps, biases or windows its attention, which the trainer does not compute")
    grouped = query.shape[1] // key.shape[1]
    if grouped > 1:  # torch's fast attention on a CPU wants a key head to each query head
        key, value = key.repeat_interleave(grouped, 1), value.repeat_interleave(grouped, 1)
    parts: list[tuple[int, Tensor]] = []
    for start, end in row.prompts:
        own = slice(start, end)
        parts.append((start, scaled_dot_product_attention(
            query[:, :, own], key[:, :, own], value[:, :, own], is_causal=True, scale=scaling)))  # fmt: skip
    for branch in row.branches:
        own, before = slice(branch.first, branch.end), slice(branch.start, branch.middle)
        keys = torch.cat((key[:, :, before], key[:, :, own]), 2)
        values = torch.cat((value[:, :, before], value[:, :, own]), 2)
        mask = _after(branch.middle - branch.start, branch.end - branch.first, query.device)
        parts.append((branch.first, scaled_dot_product_attention(query[:, :, own], keys, values, mask, scale=scaling)))
    whole = torch.cat([part for _, part in sorted(parts, key=lambda part: part[0])], 2)
    return whole.transpose(1, 2), None


def _after(before: int, own: int, device: torch.device) -> Tensor:
    """bool [1, 1, own, before + own]: each token sees all before it and itself."""
    ends = torch.arange(before, before + own, device=device)[:, None]
    return (torch.arange(before + own, device=device) <= ends)[None, None]


AttentionInterface.register(ATTENTION, attend)
