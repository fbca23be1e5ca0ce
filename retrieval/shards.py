"""The vectors of an index folder, as arrays in row order."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from retrieval.faiss_loader import load_faiss
from retrieval.manifest import Manifest

Shard = NDArray[np.float32] | NDArray[np.float16]


def open_shards(folder: Path, manifest: Manifest) -> list[Shard]:
    """The vectors of each range of the manifest, [n, dim]."""
    return [_read(folder / part.file) for part in manifest.ranges]


def _read(path: Path) -> Shard:
    index = load_faiss().read_index(str(path))
    vectors: Shard = load_faiss().vector_to_array(index.codes).view(np.float32).reshape(index.ntotal, index.d)
    return vectors
