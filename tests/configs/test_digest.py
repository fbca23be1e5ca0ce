import json
import os
from pathlib import Path

import pytest

from configs.digest import ChecksumMismatchError, check_files, digest_of, folder_digest, incomplete


def test_a_checksum_mismatch_names_file_expected_and_found(model_folder: Path, hashes: dict[str, str]) -> None:
    check_files(model_folder, hashes)
    with pytest.raises(ChecksumMismatchError) as caught:
        check_files(model_folder, {"config.json": "0" * 64})
    error = caught.value
    assert error.file == model_folder / "config.json"
    assert (error.expected, error.found) == ("0" * 64, hashes["config.json"])
    for part in (str(error.file), error.expected, error.found):
        assert part in str(error)


def test_the_digest_is_of_what_decides_behaviour(model_folder: Path, tmp_path: Path, hashes: dict[str, str]) -> None:
    digest = folder_digest(model_folder, tmp_path / "memos")
    assert digest == digest_of(hashes)
    (model_folder / "README.md").write_text("hello")
    assert folder_digest(model_folder, tmp_path / "memos", fresh=True) == digest
    (model_folder / "merges.txt").write_text("a b")
    assert folder_digest(model_folder, tmp_path / "memos") != digest


def test_the_digest_can_leave_the_weights_out(model_folder: Path, tmp_path: Path) -> None:
    digest = folder_digest(model_folder, tmp_path, weights=False)
    (model_folder / "model.safetensors").write_bytes(b"other")
    assert folder_digest(model_folder, tmp_path, weights=False, fresh=True) == digest


def test_the_digest_is_remembered_until_a_file_changes(model_folder: Path, tmp_path: Path) -> None:
    memos = tmp_path / "memos"
    weights = model_folder / "model.safetensors"
    before = folder_digest(model_folder, memos)
    times = (weights.stat().st_atime_ns, weights.stat().st_mtime_ns)
    weights.write_bytes(b"WEIGHTS")
    os.utime(weights, ns=times)  # same size, same time: only a fresh look can tell
    assert folder_digest(model_folder, memos) == before
    changed = folder_digest(model_folder, memos, fresh=True)
    assert changed != before
    weights.write_bytes(b"weights")
    os.utime(weights, ns=(times[0], times[1] + 1))
    assert folder_digest(model_folder, memos) == before


@pytest.mark.parametrize(
    ("removed", "complaint"),
    [("config.json", "no config.json"), ("tokenizer.json", "no tokenizer"), ("model.safetensors", "no weights")],
)
def test_a_model_folder_must_be_whole(model_folder: Path, removed: str, complaint: str) -> None:
    assert incomplete(model_folder) is None
    (model_folder / removed).unlink()
    assert complaint in str(incomplete(model_folder))


def test_a_missing_shard_is_noticed(model_folder: Path) -> None:
    index = {"weight_map": {"a": "model.safetensors", "b": "model-00002.safetensors"}}
    (model_folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert incomplete(model_folder) == f"{model_folder} lacks 1 of 2 weight files, model-00002.safetensors among them"
    assert incomplete(model_folder, weights=False) is None


def test_no_folder_is_no_model(tmp_path: Path) -> None:
    assert incomplete(tmp_path / "nothing") == f"{tmp_path / 'nothing'} is not a folder"
