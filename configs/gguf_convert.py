"""A GGUF judge, converted once to a safetensors folder in the cache.

transformers can read GGUF, but parses the header in Python three times and builds a name table for each of 400 submodules:
about 35 s for a 135M model, at every start. Reading the file with gguf's own reader and writing safetensors takes half of
that, once; the folder then loads in a second, and is what any other engine expects. Only the `llama` architecture is
converted, and a file with anything in it that is not understood is refused.
"""

import importlib.metadata
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from configs.digest import check_files, digest_of, model_files, sha256_file
from configs.durable import sync

if TYPE_CHECKING:
    import numpy as np
    from gguf import GGUFReader

REQUIRES = (
    "gguf",
    "safetensors",
    "transformers",
    "torch",
    "filelock",
)  # torch because transformers' GGUF code imports it

# Raise it when the same GGUF file would be converted to something else: earlier conversions then no longer count.
_FORMAT = 1
_SOURCE = "source.json"

_TENSORS = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER_TENSORS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_FIELDS = {
    "llama.block_count": "num_hidden_layers",
    "llama.context_length": "max_position_embeddings",
    "llama.embedding_length": "hidden_size",
    "llama.feed_forward_length": "intermediate_size",
    "llama.attention.head_count": "num_attention_heads",
    "llama.attention.head_count_kv": "num_key_value_heads",
    "llama.attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "llama.rope.dimension_count": "head_dim",
    "llama.rope.freq_base": "rope_theta",
    "llama.vocab_size": "vocab_size",
    "tokenizer.ggml.bos_token_id": "bos_token_id",
    "tokenizer.ggml.eos_token_id": "eos_token_id",
    "tokenizer.ggml.padding_token_id": "pad_token_id",
}


class UnsupportedGgufError(ValueError):
    """The file holds something that this converter does not understand."""


@dataclass(frozen=True, slots=True)
class Converted:
    """A finished conversion."""

    folder: Path
    sha256: Mapping[str, str]  # of every file in it that decides how the model behaves


def find(name: str, sha256: str, cache_dir: Path) -> Converted | None:
    """The finished conversion of the GGUF file with this hash, if there is one; its files must have the recorded sizes."""
    folder = _folder(name, sha256, cache_dir)
    try:
        source = json.loads((folder / _SOURCE).read_text(encoding="utf-8"))
        whole = all((folder / file).stat().st_size == size for file, size in source["sizes"].items())
    except FileNotFoundError:
        return None
    if not whole or source["format"] != _FORMAT:
        return None
    return Converted(folder, source["sha256"])


def convert(
    gguf_file: Path, sha256: str, name: str, cache_dir: Path, on_progress: Callable[[str], None] = lambda _: None
) -> Converted:
    """Convert `gguf_file`, whose hash must be `sha256`, unless that has been done.

    The result appears under its name in one rename, after everything in it has reached the disk. Of several processes one
    converts and the others wait; what a killed process left behind is swept away by the next.
    """
    if done := find(name, sha256, cache_dir):
        return done
    from filelock import FileLock, Timeout

    folder = _folder(name, sha256, cache_dir)
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder.parent / f".{folder.name}.lock")  # the kernel drops it when its owner dies
    try:
        lock.acquire(timeout=0)
    except Timeout:
        on_progress(f"waiting for another process that converts {name}")
        lock.acquire()
    try:
        if done := find(name, sha256, cache_dir):
            return done
        return _convert_locked(gguf_file, sha256, name, folder, on_progress)
    finally:
        lock.release()


def _folder(name: str, sha256: str, cache_dir: Path) -> Path:
    return cache_dir / "models" / f"{name}-{sha256[:12]}"


def _convert_locked(
    gguf_file: Path, sha256: str, name: str, folder: Path, on_progress: Callable[[str], None]
) -> Converted:
    on_progress(f"checking {gguf_file.name}")
    check_files(gguf_file.parent, {gguf_file.name: sha256})
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    try:
        _write_model(gguf_file, name, partial, on_progress)
        files = model_files(partial)
        hashes = {file.name: sha256_file(file) for file in files}
        source = {
            "format": _FORMAT,
            "gguf": gguf_file.name,
            "gguf_sha256": sha256,
            "digest": digest_of(hashes),
            "sha256": hashes,
            "sizes": {file.name: file.stat().st_size for file in files},
            "versions": {lib: importlib.metadata.version(lib) for lib in ("gguf", "safetensors", "transformers")},
        }
        (partial / _SOURCE).write_text(json.dumps(source, indent=2) + "\n", encoding="utf-8")
        for path in (*partial.iterdir(), partial):
            sync(path)
        shutil.rmtree(folder, ignore_errors=True)  # one that `find` no longer accepts
        partial.rename(folder)
        sync(folder.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return Converted(folder, hashes)


def _write_model(gguf_file: Path, name: str, target: Path, on_progress: Callable[[str], None]) -> None:
    # Two torch threads beside a busy neighbour spin instead of working; read when torch loads its OpenMP runtime.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from gguf import GGUFReader
    from safetensors.numpy import save_file
    from transformers import PreTrainedTokenizerFast

    on_progress(f"converting {name} to safetensors, once; this takes some 15 seconds")
    reader = GGUFReader(gguf_file)
    config = _config(reader)
    (target / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    tensors = dict(_tensors(reader, config["num_attention_heads"], config["num_key_value_heads"]))
    weights = target / "model.safetensors"
    save_file(tensors, weights, metadata={"format": "pt"})
    weights.chmod(0o644)  # it is written as 0600, which would keep a cache from being shared
    # Not AutoTokenizer: to choose this same class it would parse the header a second time.
    tokenizer = PreTrainedTokenizerFast.from_pretrained(gguf_file.parent, gguf_file=gguf_file.name)
    tokenizer.save_pretrained(target)


def _config(reader: "GGUFReader") -> dict[str, Any]:
    """The model's `config.json`, without a library version in it so that its hash depends on the model alone."""
    architecture = reader.fields["general.architecture"].contents()
    if architecture != "llama":
        raise UnsupportedGgufError(f"GGUF architecture {architecture!r}: only 'llama' is converted")
    if unknown := [key for key in reader.fields if key.startswith("llama.") and key not in _FIELDS]:
        raise UnsupportedGgufError(f"GGUF fields that are not understood: {', '.join(unknown)}")
    fields = {ours: reader.fields[theirs].contents() for theirs, ours in _FIELDS.items() if theirs in reader.fields}
    rope_theta = fields.pop("rope_theta")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "float32",
        "hidden_act": "silu",
        "tie_word_embeddings": all(tensor.name != "output.weight" for tensor in reader.tensors),
        "rope_parameters": {"rope_type": "default", "rope_theta": rope_theta},
        **fields,
    }


def _tensors(reader: "GGUFReader", heads: int, kv_heads: int) -> Iterator[tuple[str, "np.ndarray"]]:
    import numpy as np
    from gguf import dequantize

    interleaved = {"attn_q": heads, "attn_k": kv_heads}
    for tensor in reader.tensors:
        weights = dequantize(tensor.data, tensor.tensor_type)
        if tensor.name in _TENSORS:
            yield _TENSORS[tensor.name], weights
            continue
        match tensor.name.split("."):
            case ["blk", layer, kind, "weight"] if kind in _LAYER_TENSORS:
                if kind in interleaved:
                    weights = _halves(weights, interleaved[kind])
                yield f"model.layers.{layer}.{_LAYER_TENSORS[kind]}.weight", np.ascontiguousarray(weights)
            case _:
                raise UnsupportedGgufError(f"GGUF tensor that is not understood: {tensor.name}")


def _halves(weights: "np.ndarray", heads: int) -> "np.ndarray":
    """Undo llama.cpp's row order. It rotates neighbouring rows of a head; transformers rotates its two halves."""
    rows, columns = weights.shape
    return weights.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)
