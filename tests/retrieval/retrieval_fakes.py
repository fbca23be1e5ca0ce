"""An encoder that needs no model, and passages to go with it. Importable from a subprocess as well."""

import hashlib
import threading
from collections.abc import Generator, Iterable, Iterator, Sequence
from functools import cache

import numpy as np

from retrieval.encoder import Vectors
from retrieval.encoder_spec import Arithmetic, EncoderSpec, ModelIdentity
from retrieval.passage import Passage

DIM = 16
_SENTENCE = "in adults whose kidneys work and is given by mouth twice a day together with food and a glass of water"
SPEC = EncoderSpec(
    name="fake",
    query_model=ModelIdentity(name="fake/query", digest="a" * 64),
    passage_model=ModelIdentity(name="fake/passage", digest="b" * 64),
    pooling="mean",
    normalize=False,
    query_max_tokens=32,
    passage_max_tokens=64,
    passage_format="joined",
    dim=DIM,
)


@cache
def embed(text: str) -> Vectors:
    """A sum of small-integer vectors, one per word: exact in float32, and equal for texts with the same words."""
    vector = np.zeros(DIM, dtype=np.float32)
    for word in text.lower().split():
        digest = hashlib.blake2b(word.encode(), digest_size=DIM).digest()
        vector += np.frombuffer(digest, dtype=np.uint8).astype(np.float32) % 7 - 3
    return vector


class FakeEncoder:
    """Encodes with `embed`, remembers what it was asked, and can be held at a gate.

    A query with the word `poison` raises, as a model that runs out of memory does; one with `nan` gives NaN.
    """

    def __init__(self, spec: EncoderSpec = SPEC) -> None:
        self.spec = spec
        self.arithmetic = Arithmetic(precision="float32", batch_size=1, device="cpu")
        self.batches: list[list[str]] = []
        self.busy = threading.Event()
        self.gate = threading.Event()
        self.gate.set()

    def encode_queries(self, queries: Sequence[str]) -> Vectors:
        self.batches.append(list(queries))
        self.busy.set()
        if not self.gate.wait(timeout=10):
            raise TimeoutError("the test never opened the gate")
        if any("poison" in query for query in queries):
            raise MemoryError("poisoned")
        vectors = np.stack([embed(query) for query in queries])
        vectors[["nan" in query.split() for query in queries]] = np.nan
        return vectors

    def encode_passages(self, passages: Sequence[Passage]) -> Vectors:
        return np.stack([embed(f"{passage.title} {passage.text}") for passage in passages])

    def encode_blocks(self, blocks: Iterable[Sequence[Passage]]) -> Generator[Vectors, None, None]:
        for block in blocks:
            yield self.encode_passages(block)


def passages(count: int = 300) -> Iterator[Passage]:
    for number in range(count):
        yield Passage(
            id=f"p{number}",
            title=f"Drug {number}",
            text=f"drug {number} lowers marker {number % 7} é {_SENTENCE}",
            corpus="c",
        )
