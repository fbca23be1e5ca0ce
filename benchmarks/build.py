"""Building an index from ready vectors: time, and the most memory that the process ever had resident.

    python -m benchmarks.build [--rows 1000000] [--dim 768] [--dtype float32] [--folder FOLDER]

Passages are made up, 1.6 kB each, and vectors random: what is measured is everything but the encoder. Afterwards the text
store is read at random rows, and opened. The folder needs 5 GB for a million rows of 768 numbers, and is removed at the end.
"""

import argparse
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from retrieval.encoder_spec import MEDCPT, EncoderSpec, ModelIdentity
from retrieval.passage import Passage
from retrieval.ready_vectors import Block, build_from_vectors
from retrieval.shards import open_shards
from retrieval.textstore import TextStore

_BLOCK = 10_000
_WORDS = ["fever", "warfarin", "randomised", "patients", "dose", "associated", "renal", "significantly", "trial", "of"]


def main() -> None:
    """Build, read, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=768)
    parser.add_argument("--dtype", choices=["float32", "float16"], default="float32")
    parser.add_argument("--shard-rows", type=int, default=20_000)
    parser.add_argument("--folder", type=Path, help="where to work; default: the system's temporary folder")
    options = parser.parse_args()
    before = _peak()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        target = Path(name) / "index"
        started = time.perf_counter()
        manifest = build_from_vectors(
            _blocks(options.rows, options.dim),
            _spec(options.dim),
            target,
            dtype=options.dtype,
            shard_rows=options.shard_rows,
        )
        seconds = time.perf_counter() - started
        shard = options.shard_rows * options.dim * 4 / 2**20
        print(f"{manifest.rows:,} x {options.dim} {options.dtype} in {len(manifest.ranges)} shards: {seconds:.0f} s")
        print(f"most resident: {_peak():.0f} MiB, {before:.0f} of them before; a shard in hand is {shard:.0f} MiB")
        _read(target, manifest.rows)
        started = time.perf_counter()
        open_shards(target, manifest)
        print(f"mapping the vectors: {(time.perf_counter() - started) * 1e3:.1f} ms")


def _read(folder: Path, rows: int) -> None:
    opened = []
    for _ in range(5):
        started = time.perf_counter()
        TextStore(folder).close()
        opened.append(time.perf_counter() - started)
    drawn = np.random.default_rng(1).integers(rows, size=10_000).tolist()
    with TextStore(folder) as texts:
        runs = []
        for _ in range(10):
            started = time.process_time()  # reads come from the page cache: what counts is what they cost the processor
            texts.get_many(drawn)
            runs.append((time.process_time() - started) / len(drawn))
    print(
        f"text store: opened in {min(opened) * 1e3:.2f} ms, {min(runs) * 1e6:.1f} µs of CPU a row, the least of several"
    )


def _blocks(rows: int, dim: int) -> Iterator[Block]:
    draw = np.random.default_rng(0)
    for start in range(0, rows, _BLOCK):
        count = min(_BLOCK, rows - start)
        words = draw.integers(len(_WORDS), size=(count, 200))
        passages = [
            Passage(
                id=str(start + number),
                title=f"Passage {start + number}",
                text=f"{start + number} " + " ".join(_WORDS[word] for word in chosen),
                corpus="made-up",
            )
            for number, chosen in enumerate(words.tolist())
        ]
        yield passages, draw.standard_normal((count, dim), dtype=np.float32)


def _spec(dim: int) -> EncoderSpec:
    model = ModelIdentity(name="random", digest="0" * 64)
    return MEDCPT.model_copy(update={"query_model": model, "passage_model": model, "dim": dim})


def _peak() -> float:
    """MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
