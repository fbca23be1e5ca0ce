"""Encoding passages as a build does, against the bare forward pass.

    python -m benchmarks.encode [--corpus starter] [--passages 512] [--runs 3] [--device auto] [--precision auto]

`build` (MiniLM) reads texts from a store, tokenises, sorts, pads, computes, pools and fetches vectors. `bare` is the model's
forward pass and nothing else, on the same batches, tokenised beforehand. Both in turn, several times.
"""

import argparse
import itertools
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from configs.load import load_settings
from configs.resolve import resolve
from medverify.assemble import load_encoder
from medverify.cli.common import quiet_libraries
from retrieval.build import blocks_of_like_length
from retrieval.encoder import TransformerEncoder
from retrieval.manifest import RowRange
from retrieval.sources import read
from retrieval.textstore import TextStore, TextStoreWriter


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", default="starter")
    parser.add_argument("--passages", type=int, default=512)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="auto")
    options = parser.parse_args()
    quiet_libraries()
    chosen = [f"retrieval.device={options.device}", f"retrieval.precision={options.precision}"]
    settings = load_settings(None, {}, chosen).settings
    encoder = load_encoder(settings, "minilm-l6", print)
    print(encoder.arithmetic)
    with tempfile.TemporaryDirectory() as name:
        with TextStoreWriter(Path(name)) as writer:
            for passage in itertools.islice(read(options.corpus), options.passages):
                writer.append(passage)
        with TextStore(Path(name)) as texts:
            folder = resolve("minilm-l6", settings.paths.cache).path
            model, batches = bare(encoder, folder, texts)
            measure(encoder, model, batches, texts, options.runs)


def measure(
    encoder: TransformerEncoder, model: Any, batches: list[dict[str, Any]], texts: TextStore, runs: int
) -> None:
    """Time both ways in turn and print passages a second, medians, and their ratio."""
    import torch

    blocks = _blocks(texts)
    times: dict[str, list[float]] = {"build": [], "bare": []}
    for run in range(runs + 1):
        started = time.perf_counter()
        for _ in encoder.encode_blocks(texts.get_many(rows) for rows in blocks):
            pass
        between = time.perf_counter()
        with torch.inference_mode():
            for batch in batches:
                last = model(**batch).last_hidden_state
            last[:, 0].cpu()  # wait for a GPU
        ended = time.perf_counter()
        if run:  # the first is a warm-up
            times["build"].append(between - started)
            times["bare"].append(ended - between)
            print(f"run {run}: build {between - started:.2f} s, bare {ended - between:.2f} s", flush=True)
    speed = {way: len(texts) / statistics.median(seconds) for way, seconds in times.items()}
    ratio = statistics.median(bare / build for bare, build in zip(times["bare"], times["build"], strict=True))
    print(f"passages a second: build {speed['build']:.1f}, bare {speed['bare']:.1f}; build / bare {ratio:.3f}")


def bare(encoder: TransformerEncoder, folder: Path, texts: TextStore) -> tuple[Any, list[dict[str, Any]]]:
    """The model, loaded with transformers alone, and the batches of a build as it takes them."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    arithmetic = encoder.arithmetic
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder, dtype=getattr(torch, arithmetic.precision)).eval().to(arithmetic.device)
    batches = []
    for rows in _blocks(texts):
        whole = [f"{passage.title}. {passage.text}" for passage in texts.get_many(rows)]
        tokens = tokenizer(whole, truncation=True, max_length=encoder.spec.passage_max_tokens)["input_ids"]
        order = sorted(range(len(whole)), key=lambda row: -len(tokens[row]))
        for start in range(0, len(order), arithmetic.batch_size):
            together = [whole[row] for row in order[start : start + arithmetic.batch_size]]
            batch = tokenizer(
                together, truncation=True, max_length=encoder.spec.passage_max_tokens, padding=True, return_tensors="pt"
            )
            batches.append({name: tensor.to(arithmetic.device) for name, tensor in batch.items()})
    return model, batches


def _blocks(texts: TextStore) -> list[NDArray[np.int64]]:
    return blocks_of_like_length(texts.offsets, RowRange(file="", start=0, stop=len(texts)))


if __name__ == "__main__":
    main()
