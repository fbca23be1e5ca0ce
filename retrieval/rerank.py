"""The `rerank` profile: a cross-encoder reads the query and each passage that another ranker found, and orders them anew."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from retrieval.encoder import joined
from retrieval.encoder_spec import weights_digest
from retrieval.model_loader import Loaded, load_model, pick_device
from retrieval.passage import EncoderError, Passage, QueryError
from retrieval.ranker import Ranker, Ranking
from retrieval.stats import Histogram, Staged
from retrieval.textstore import TextStore

DEPTH = 32  # passages that are read for each query
MAX_TOKENS = 512  # of a query and a passage together, as MedCPT's authors use theirs

Pair = tuple[str, Passage]


class CrossEncoder(Protocol):
    """Scores a passage for a query by reading both at once. Used by one thread at a time."""

    @property
    def digest(self) -> str:
        """SHA-256 over everything that decides the scores."""
        ...

    def score(self, pairs: Sequence[Pair]) -> NDArray[np.float32]:
        """float32 [n], finite, in the order given; higher is more relevant."""
        ...


class TransformerCrossEncoder:
    """A cross-encoder with MedCPT's interface: (query, `title. text`) in, one logit out. Float32. Not thread-safe."""

    def __init__(self, folder: Path, device: str = "auto", batch_size: int = 32) -> None:
        """Take the folder of a sequence-classification model with one label; it is loaded when first used.

        Raises:
            EncoderError: not a model folder.
        """
        self._folder, self._device, self._batch_size = folder, device, batch_size
        self._loaded: Loaded | None = None
        recipe = f"cross-encoder (query, title. text) {MAX_TOKENS} {weights_digest(folder)}"
        self.digest = hashlib.sha256(recipe.encode()).hexdigest()

    def score(self, pairs: Sequence[Pair]) -> NDArray[np.float32]:
        """Score pairs, those of similar length together so that little padding is computed: float32 [n].

        Raises:
            EncoderError: the model cannot be loaded, is not a cross-encoder, or gives NaN or infinity.
        """
        import torch

        tokenizer, model = self._loaded = self._loaded or self._load()
        texts = [(query, joined(passage)) for query, passage in pairs]
        scores = np.empty(len(texts), dtype=np.float32)
        order = sorted(range(len(texts)), key=lambda position: sum(map(len, texts[position])))
        for start in range(0, len(order), self._batch_size):
            chosen = order[start : start + self._batch_size]
            queries, articles = zip(*(texts[position] for position in chosen), strict=True)
            tokens = tokenizer(
                list(queries), list(articles), truncation=True, max_length=MAX_TOKENS, padding=True, return_tensors="pt"
            ).to(model.device)
            with torch.inference_mode():
                scores[chosen] = model(**tokens).logits[:, 0].cpu().numpy()
        finite = np.isfinite(scores)
        if not finite.all():
            query, passage = pairs[int(np.argmin(finite))]
            raise EncoderError(f"{self._folder}: NaN or infinity for {query!r:.80} and passage {passage.id!r}")
        return scores

    def _load(self) -> Loaded:
        loaded = load_model(self._folder, "classification", pick_device(self._device))
        config = loaded.model.config
        if config.num_labels != 1 or config.max_position_embeddings < MAX_TOKENS:
            raise EncoderError(
                f"{self._folder}: {config.num_labels} labels and {config.max_position_embeddings} tokens at most, but a "
                f"cross-encoder gives one score for {MAX_TOKENS}"
            )
        return loaded


class RerankRanker:
    """The first `depth` rows of another ranker, ordered by a cross-encoder.

    The depth does not depend on k, so that the best three are the same whether three or ten were asked for. Hence at most
    `depth` rows are found.
    """

    profile = "rerank"

    def __init__(self, base: Ranker, cross_encoder: CrossEncoder, texts: TextStore, depth: int = DEPTH) -> None:
        """Args:
        texts: of the index that `base` searches; stays the caller's to close.
        """
        self._base, self._cross_encoder, self._texts, self._depth = base, cross_encoder, texts, depth
        self.stages = {
            **(base.stages if isinstance(base, Staged) else {}),
            "candidates": Histogram(),
            "rerank": Histogram(),
        }
        self.digest = hashlib.sha256(f"rerank depth={depth} {base.digest} {cross_encoder.digest}".encode()).hexdigest()

    def rank(self, queries: Sequence[str], k: int) -> list[Ranking]:
        """The at most k best rows; equal scores by ascending row.

        Raises:
            QueryError: k below 1.
            RetrievalError: what the base or the cross-encoder raises: an order that was not made anew is another profile.
        """
        if k < 1:
            raise QueryError(f"k is {k}; expected at least 1")
        if not queries:
            return []
        found = [ranking.rows for ranking in self._base.rank(queries, self._depth)]
        with self.stages["candidates"].timed():
            passages = {row: self._texts.get(row) for row in np.unique(np.concatenate(found)).tolist()}
        pairs = [(query, passages[row]) for query, rows in zip(queries, found, strict=True) for row in rows.tolist()]
        with self.stages["rerank"].timed():
            scored = self._cross_encoder.score(pairs)
        scores = np.split(scored, np.cumsum([len(rows) for rows in found])[:-1])
        return [_ordered(rows, marks, k) for rows, marks in zip(found, scores, strict=True)]


def _ordered(rows: NDArray[np.int64], scores: NDArray[np.float32], k: int) -> Ranking:
    order = np.lexsort((rows, -scores))[:k]
    return Ranking(rows[order], scores[order])
