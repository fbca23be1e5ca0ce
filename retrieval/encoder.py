"""Turn queries and passages into vectors, exactly as the recipe says."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from retrieval.encoder_spec import EncoderSpec, pinned
from retrieval.passage import EncoderError, Passage

# OpenMP threads that wait by spinning make every step tens of times slower beside a busy neighbour. OpenMP reads this
# once, when torch is first imported, hence here and not where torch is used.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

Vectors = NDArray[np.float32]


class Encoder(Protocol):
    """What builds and searches an index. Used by one thread at a time."""

    @property
    def spec(self) -> EncoderSpec:
        """The recipe, with the digests of the models in use."""
        ...

    def encode_queries(self, queries: Sequence[str]) -> Vectors:
        """float32 [n, dim], finite, in the order given."""
        ...

    def encode_passages(self, passages: Sequence[Passage]) -> Vectors:
        """float32 [n, dim], finite, in the order given."""
        ...


@dataclass(frozen=True)
class _Side:
    """A loaded model and its tokenizer."""

    tokenizer: Any
    model: Any


class TransformerEncoder:
    """An encoder that runs with transformers, in float32. Each model is loaded when first used. Not thread-safe.

    Without `passage_dir`, a recipe with one model for both sides uses `query_dir` for both; a recipe with two models
    encodes queries only, and must be pinned (as the recipe in a manifest is).
    """

    def __init__(
        self,
        spec: EncoderSpec,
        query_dir: Path,
        passage_dir: Path | None = None,
        device: str = "auto",
        batch_size: int = 32,
    ) -> None:
        """Pin the recipe to the model folders.

        Raises:
            EncoderError: a folder is not a model folder, or the passage side is neither given nor pinned.
            IndexMismatchError: the recipe is pinned to other weights than a folder holds.
        """
        if passage_dir is None and spec.query_model == spec.passage_model:
            passage_dir = query_dir
        self._query_dir, self._passage_dir = query_dir, passage_dir
        self._device, self._batch_size = device, batch_size
        self._sides: dict[Path, _Side] = {}
        query_model = pinned(spec.query_model, query_dir, "query_model")
        if passage_dir is None:
            if not spec.passage_model.digest:
                raise EncoderError(f"encoder {spec.name}: give the folder of {spec.passage_model.name} as well")
            passage_model = spec.passage_model
        elif passage_dir == query_dir and spec.query_model == spec.passage_model:
            passage_model = query_model  # the same files: not hashed twice
        else:
            passage_model = pinned(spec.passage_model, passage_dir, "passage_model")
        self._spec = spec.model_copy(update={"query_model": query_model, "passage_model": passage_model})

    @property
    def spec(self) -> EncoderSpec:
        """The recipe, with the digests of the models in use."""
        return self._spec

    def encode_queries(self, queries: Sequence[str]) -> Vectors:
        """Encode queries: float32 [n, dim].

        Raises:
            EncoderError: the model cannot be loaded, does not fit the recipe, or gives NaN or infinity.
        """
        side = self._side(self._query_dir)
        return self._encode(side, [(query,) for query in queries], self._spec.query_max_tokens)

    def encode_passages(self, passages: Sequence[Passage]) -> Vectors:
        """Encode passages: float32 [n, dim].

        Raises:
            EncoderError: as `encode_queries`, and if this encoder was made for queries only.
        """
        if self._passage_dir is None:
            raise EncoderError(
                f"encoder {self._spec.name} was made for queries only; give it the passage model's folder"
            )
        form = _FORMATS[self._spec.passage_format]
        return self._encode(self._side(self._passage_dir), [form(p) for p in passages], self._spec.passage_max_tokens)

    def _encode(self, side: _Side, segments: Sequence[tuple[str, ...]], max_tokens: int) -> Vectors:
        """Encode texts of one or two segments, similar lengths together so that little padding is computed."""
        import torch

        vectors = np.empty((len(segments), self._spec.dim), dtype=np.float32)
        order = sorted(range(len(segments)), key=lambda row: sum(map(len, segments[row])))
        for start in range(0, len(order), self._batch_size):
            rows = order[start : start + self._batch_size]
            columns = [list(column) for column in zip(*(segments[row] for row in rows), strict=True)]
            tokens = side.tokenizer(
                *columns, truncation=True, max_length=max_tokens, padding=True, return_tensors="pt"
            ).to(side.model.device)
            with torch.inference_mode():
                hidden = side.model(**tokens).last_hidden_state
                pooled = _pool(hidden, tokens["attention_mask"], self._spec.pooling)
                if self._spec.normalize:
                    pooled = torch.nn.functional.normalize(pooled, dim=-1)
            vectors[rows] = pooled.cpu().numpy()
        finite = np.isfinite(vectors).all(axis=1)
        if not finite.all():
            row = int(np.flatnonzero(~finite)[0])
            raise EncoderError(f"encoder {self._spec.name}: NaN or infinity for {segments[row][-1]!r:.80}")
        return vectors

    def _side(self, folder: Path) -> _Side:
        if folder not in self._sides:
            self._sides[folder] = self._load(folder)
        return self._sides[folder]

    def _load(self, folder: Path) -> _Side:
        import torch
        from transformers import AutoModel, AutoTokenizer

        device = self._device
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
            model, report = AutoModel.from_pretrained(
                folder, local_files_only=True, dtype=torch.float32, output_loading_info=True
            )
            model = model.eval().to(device)
        except (OSError, ValueError, RuntimeError) as error:
            raise EncoderError(f"{folder}: cannot be loaded on {device}: {error}") from error
        # transformers fills what is missing with random numbers. The pooler alone may be: it is not read here.
        if missing := sorted(key for key in report["missing_keys"] if not key.startswith("pooler.")):
            raise EncoderError(f"{folder}: the weights lack {len(missing)} tensors of the model, such as {missing[0]}")
        longest = max(self._spec.query_max_tokens, self._spec.passage_max_tokens)
        if model.config.hidden_size != self._spec.dim or model.config.max_position_embeddings < longest:
            raise EncoderError(
                f"{folder}: vectors of {model.config.hidden_size} and {model.config.max_position_embeddings} tokens at "
                f"most, but the recipe {self._spec.name} asks for {self._spec.dim} and {longest}"
            )
        return _Side(tokenizer, model)


def _pool(hidden: Any, mask: Any, pooling: Literal["cls", "mean"]) -> Any:
    """Reduce hidden [n, tokens, dim] to [n, dim]; mask [n, tokens] is 0 at padding."""
    if pooling == "cls":
        return hidden[:, 0]
    weights = mask.unsqueeze(-1).to(hidden.dtype)
    return (hidden * weights).sum(dim=1) / weights.sum(dim=1)


def _pair(passage: Passage) -> tuple[str, ...]:
    return passage.title, passage.text


def _joined(passage: Passage) -> tuple[str, ...]:
    return (f"{passage.title}. {passage.text}" if passage.title else passage.text,)


_FORMATS: Mapping[str, Callable[[Passage], tuple[str, ...]]] = {"pair": _pair, "joined": _joined}
