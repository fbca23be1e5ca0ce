"""What a model folder contains, as one SHA-256: the part of a judge's or an encoder's identity that is its weights."""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

# What decides how a model behaves. READMEs and pooling notes do not, so that a copy without them is the same model.
_VOCABULARIES = frozenset({"tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json", "vocab.txt"})
_NAMES = _VOCABULARIES | {
    "config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "merges.txt",
    "chat_template.jinja",
}
WEIGHTS = frozenset({".safetensors", ".bin"})


class ChecksumMismatchError(Exception):
    """A file is not the one that was pinned."""

    def __init__(self, file: Path, expected: str, found: str) -> None:
        super().__init__(
            f"{file} is not the file that was pinned: expected sha256 {expected}, found {found}. "
            "Remove it and install it again."
        )
        self.file, self.expected, self.found = file, expected, found


def sha256_file(file: Path) -> str:
    """SHA-256 of a file's bytes, as hex."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def check_files(folder: Path, expected: Mapping[str, str]) -> None:
    """Hash each named file below `folder` and refuse the first that differs."""
    for name, sha256 in expected.items():
        found = sha256_file(folder / name)
        if found != sha256:
            raise ChecksumMismatchError(folder / name, sha256, found)


def model_files(folder: Path, *, weights: bool = True) -> list[Path]:
    """The files that decide how the model in `folder` behaves, sorted by name.

    Where a folder has both safetensors and `.bin` weights only the former count, because only they are loaded.
    """
    files = [file for file in folder.iterdir() if file.is_file()]
    loaded = {".safetensors"} if any(file.suffix == ".safetensors" for file in files) else WEIGHTS
    return sorted(file for file in files if file.name in _NAMES or (weights and file.suffix in loaded))


def incomplete(folder: Path, *, weights: bool = True) -> str | None:
    """Why `folder` is not a whole model, or None if it is: an interrupted download must not pass for one."""
    if not folder.is_dir():
        return f"{folder} is not a folder"
    names = {file.name for file in model_files(folder)}
    if "config.json" not in names:
        return f"{folder} has no config.json"
    if not names & _VOCABULARIES:
        return f"{folder} has no tokenizer ({', '.join(sorted(_VOCABULARIES))})"
    return _lacks_weights(folder, names) if weights else None


def _lacks_weights(folder: Path, names: set[str]) -> str | None:
    if not any(Path(name).suffix in WEIGHTS for name in names):
        return f"{folder} has no weights (*.safetensors or *.bin)"
    index = folder / "model.safetensors.index.json"
    shards = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()) if index.is_file() else set()
    if missing := sorted(shards - names):
        return f"{folder} lacks {len(missing)} of {len(shards)} weight files, {missing[0]} among them"
    return None


def digest_of(sha256_by_name: Mapping[str, str]) -> str:
    """One digest over files whose own digests are known."""
    lines = "".join(f"{name} {sha256}\n" for name, sha256 in sorted(sha256_by_name.items()))
    return hashlib.sha256(lines.encode()).hexdigest()


def folder_digest(folder: Path, memo_dir: Path, *, weights: bool = True, fresh: bool = False) -> str:
    """The digest of a model folder, computed once for as long as its files keep their size and modification time.

    An 8B model is 16 GB to read. The memo's name is derived from paths, sizes and times, so a changed file leads to
    another memo and none is ever updated; `fresh` computes anew whatever the memo says.
    """
    files = model_files(folder, weights=weights)
    stamps = "".join(f"{file.resolve()} {file.stat().st_size} {file.stat().st_mtime_ns}\n" for file in files)
    memo = memo_dir / hashlib.sha256(stamps.encode()).hexdigest()
    if memo.exists() and not fresh:
        return memo.read_text(encoding="ascii")
    digest = digest_of({file.name: sha256_file(file) for file in files})
    memo_dir.mkdir(parents=True, exist_ok=True)
    partial = memo.with_suffix(f".{os.getpid()}")
    partial.write_text(digest, encoding="ascii")
    partial.replace(memo)
    return digest
