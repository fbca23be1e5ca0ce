"""Turn queries and passages into vectors, exactly as the recipe says."""

import os
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from configs.precision import native_bfloat16
from retrieval import unpadded
from retrieval.encoder_spec import Arithmetic, EncoderSpec, pinned
from retrieval.exact_scores import Vectors as Vectors  # noqa: PLC0414 - what encoders give, for who uses them
from retrieval.model_loader import Loaded, load_model, pick_device
from retrieval.passage import EncoderError, Passage

# OpenMP threads that wait by spinning make every step tens of times slower beside a busy neighbour. OpenMP reads this
# once, when torch is first imported, hence here and not where torch is used.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


_QUERIES_TOGETHER = 64  # more at once are not faster


class Encoder(Protocol):
    """What builds and searches an index. Used by one thread at a time."""

    @property
    def spec(self) -> EncoderSpec:
        """The recipe, with the digests of the models in use."""
        ...

    def encode_queries(self, queries: Sequence[str]) -> Vectors:
        """float32 [n, dim], finite, in the order given."""
        ...

    @property
    def arithmetic(self) -> Arithmetic:
        """How passages are computed."""
        ...

    def encode_passages(self, passages: Sequence[Passage]) -> Vectors:
        """float32 [n, dim], finite, in the order given."""
        ...

    def encode_blocks(self, blocks: Iterable[Sequence[Passage]]) -> Generator[Vectors, None, None]:
        """As `encode_passages`, block after block; may draw the next block, in another thread, while one is computed."""
        ...


@dataclass(frozen=True)
class _Batch:
    """Texts that are computed together, the longest first."""

    rows: NDArray[np.int64]  # which texts
    inputs: Mapping[str, NDArray[np.int64]]  # [rows, tokens] padded, or [1, all tokens]
    runs: Sequence[unpadded.Run] = ()  # where the texts are in the single row; empty if padded


@dataclass(frozen=True)
class _Tokens:
    """Texts ready for the model."""

    texts: Sequence[str]  # as given, for messages
    batches: Sequence[_Batch]


class TransformerEncoder:
    """An encoder that runs with transformers. Each model is loaded when first used. Not thread-safe.

    Queries are computed in float32; passages in `precision`, where `auto` is bfloat16 if the hardware multiplies it
    natively, else float32.

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
        *,
        precision: Literal["auto", "float32", "bfloat16"] = "auto",
    ) -> None:
        """Pin the recipe to the model folders.

        Raises:
            EncoderError: a folder is not a model folder, or the passage side is neither given nor pinned.
            IndexMismatchError: the recipe is pinned to other weights than a folder holds.
        """
        if passage_dir is None and spec.query_model == spec.passage_model:
            passage_dir = query_dir
        self._query_dir, self._passage_dir = query_dir, passage_dir
        self._device, self._batch_size, self._precision = device, batch_size, precision
        self._sides: dict[tuple[Path, str, bool], Loaded] = {}
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

    @property
    def arithmetic(self) -> Arithmetic:
        """How passages are computed. Imports torch."""
        device = pick_device(self._device)
        precision = self._precision
        if precision == "auto":
            precision = "bfloat16" if native_bfloat16(device) else "float32"
        return Arithmetic(precision=precision, batch_size=self._batch_size, device=device.partition(":")[0])

    def encode_queries(self, queries: Sequence[str]) -> Vectors:
        """Encode queries: float32 [n, dim].

        Raises:
            EncoderError: the model cannot be loaded, does not fit the recipe, or gives NaN or infinity.
        """
        side = self._side(self._query_dir, "float32", queries=True)
        return self._compute(side, self._tokenise(side, [(query,) for query in queries], self._spec.query_max_tokens))

    def encode_passages(self, passages: Sequence[Passage]) -> Vectors:
        """Encode passages: float32 [n, dim].

        Raises:
            EncoderError: as `encode_queries`, and if this encoder was made for queries only.
        """
        [vectors] = self.encode_blocks([passages])
        return vectors

    def encode_blocks(self, blocks: Iterable[Sequence[Passage]]) -> Generator[Vectors, None, None]:
        """Encode block after block; a thread reads and tokenises the next one meanwhile. Raises as `encode_passages`."""
        if self._passage_dir is None:
            raise EncoderError(
                f"encoder {self._spec.name} was made for queries only; give it the passage model's folder"
            )
        side = self._side(self._passage_dir, self.arithmetic.precision)
        form, waiting = _FORMATS[self._spec.passage_format], iter(blocks)

        def prepare() -> _Tokens | None:
            block = next(waiting, None)
            if block is None:
                return None
            return self._tokenise(side, [form(passage) for passage in block], self._spec.passage_max_tokens)

        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="tokeniser") as ahead:
            tokens = ahead.submit(prepare).result()
            while tokens is not None:
                following = ahead.submit(prepare)
                yield self._compute(side, tokens)
                tokens = following.result()

    def _tokenise(self, side: Loaded, segments: Sequence[tuple[str, ...]], max_tokens: int) -> _Tokens:
        """Tokenise texts of one or two segments, and put similar lengths together so that little padding is computed."""
        if not segments:
            return _Tokens([], [])
        encoded = side.tokenizer(*map(list, zip(*segments, strict=True)), truncation=True, max_length=max_tokens)
        lengths = np.fromiter(map(len, encoded["input_ids"]), dtype=np.int64, count=len(segments))
        order = np.argsort(-lengths, kind="stable")  # the longest first: what does not fit into memory shows at once
        flat = side.model.config._attn_implementation == unpadded.ATTENTION
        size = _QUERIES_TOGETHER if flat else self._batch_size
        padding = {"input_ids": side.tokenizer.pad_token_id, "token_type_ids": side.tokenizer.pad_token_type_id}
        batches = []
        for rows in (order[start : start + size] for start in range(0, len(order), size)):
            columns = {name: [ids[row] for row in rows] for name, ids in encoded.items()}
            if flat:
                batches.append(_Batch(rows, _concatenated(columns), unpadded.runs(lengths[rows])))
            else:
                inputs = {name: _padded(column, padding.get(name, 0)) for name, column in columns.items()}
                batches.append(_Batch(rows, inputs))
        return _Tokens([segment[-1] for segment in segments], batches)

    def _compute(self, side: Loaded, tokens: _Tokens) -> Vectors:
        """Run the model over every batch: float32 [n, dim]. Results are fetched at the end: a GPU is never waited for."""
        import torch

        vectors = np.empty((len(tokens.texts), self._spec.dim), dtype=np.float32)
        computed = []
        with torch.inference_mode():
            for batch in tokens.batches:
                inputs = {name: torch.from_numpy(array).to(side.model.device) for name, array in batch.inputs.items()}
                if batch.runs:
                    hidden = side.model(**inputs, unpadded=batch.runs).last_hidden_state[0]
                    parts = [_pool(part, None, self._spec.pooling) for part in unpadded.split(hidden, batch.runs)]
                    pooled = torch.cat(parts)
                else:
                    pooled = _pool(side.model(**inputs).last_hidden_state, inputs["attention_mask"], self._spec.pooling)
                computed.append(torch.nn.functional.normalize(pooled, dim=-1) if self._spec.normalize else pooled)
        for batch, pooled in zip(tokens.batches, computed, strict=True):
            vectors[batch.rows] = pooled.cpu().numpy()
        finite = np.isfinite(vectors).all(axis=1)
        if not finite.all():
            text = tokens.texts[int(np.argmin(finite))]
            raise EncoderError(f"encoder {self._spec.name}: NaN or infinity for {text!r:.80}")
        return vectors

    def _side(self, folder: Path, precision: str, *, queries: bool = False) -> Loaded:
        key = (folder, precision, queries)
        if key not in self._sides:
            self._sides[key] = self._load(folder, precision, queries=queries)
        return self._sides[key]

    def _load(self, folder: Path, precision: str, *, queries: bool) -> Loaded:
        side = load_model(folder, "none", pick_device(self._device), precision)
        if queries and side.model.config.model_type == "bert":  # whose attention knows no positions
            unpadded.register()
            side.model.set_attn_implementation(unpadded.ATTENTION)
        config = side.model.config
        longest = max(self._spec.query_max_tokens, self._spec.passage_max_tokens)
        if config.hidden_size != self._spec.dim or config.max_position_embeddings < longest:
            raise EncoderError(
                f"{folder}: vectors of {config.hidden_size} and {config.max_position_embeddings} tokens at most, but the "
                f"recipe {self._spec.name} asks for {self._spec.dim} and {longest}"
            )
        return side


def use_gpu_of(rank: int) -> None:
    """Let `cuda` mean, in this process, the GPU whose turn it is among the ranks of this machine; without a GPU do nothing."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", rank)) % torch.cuda.device_count())


def _pool(hidden: Any, mask: Any, pooling: Literal["cls", "mean"]) -> Any:
    """Reduce hidden [n, tokens, dim] to float32 [n, dim]; mask [n, tokens] is 0 at padding, None if there is none."""
    if pooling == "cls":
        return hidden[:, 0].float()
    if mask is None:
        return hidden.float().mean(dim=1)
    weights = mask.unsqueeze(-1).float()
    return (hidden.float() * weights).sum(dim=1) / weights.sum(dim=1)


def _concatenated(columns: Mapping[str, Sequence[Sequence[int]]]) -> dict[str, NDArray[np.int64]]:
    """The tokens of all texts as one row, with each token's place in its text; what is left out says which are padding."""
    inputs = {
        name: np.concatenate([np.asarray(ids, dtype=np.int64) for ids in column])[None]
        for name, column in columns.items()
        if name != "attention_mask"
    }
    inputs["position_ids"] = np.concatenate([np.arange(len(ids)) for ids in columns["input_ids"]])[None]
    return inputs


def _padded(rows: Sequence[Sequence[int]], filler: int) -> NDArray[np.int64]:
    """Rows of different lengths as one int64 [n, longest], filled on the right."""
    array = np.full((len(rows), max(map(len, rows))), filler, dtype=np.int64)
    for number, row in enumerate(rows):
        array[number, : len(row)] = row
    return array


def _pair(passage: Passage) -> tuple[str, ...]:
    return passage.title, passage.text


def joined(passage: Passage) -> str:
    """Title and text as one segment."""
    return f"{passage.title}. {passage.text}" if passage.title else passage.text


_FORMATS: Mapping[str, Callable[[Passage], tuple[str, ...]]] = {
    "pair": _pair,
    "joined": lambda passage: (joined(passage),),
}
