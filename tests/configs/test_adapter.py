import json
from pathlib import Path

import pytest

from configs.adapter import AdapterError, read_adapter


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What passes for an adapter as long as nobody loads it."""
    path = tmp_path / "adapter"
    path.mkdir()
    (path / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 8}))
    (path / "adapter_model.safetensors").write_bytes(b"weights")
    return path


def configure(folder: Path, **config: object) -> None:
    (folder / "adapter_config.json").write_text(json.dumps(config))


def test_an_adapter_is_known_by_what_is_in_it(folder: Path) -> None:
    adapter = read_adapter(folder)
    assert (adapter.folder, adapter.rank) == (folder, 8)
    (folder / "README.md").write_text("for people")
    assert read_adapter(folder) == adapter
    (folder / "adapter_model.safetensors").write_bytes(b"other weights")
    assert read_adapter(folder).digest != adapter.digest
    configure(folder, peft_type="LORA", r=8, lora_alpha=1)
    assert read_adapter(folder).digest != adapter.digest


@pytest.mark.parametrize(("pattern", "rank"), [(None, 8), ({}, 8), ({"q_proj": 32}, 32), ({"q_proj": 2}, 8)])
def test_the_largest_rank_counts(folder: Path, pattern: dict[str, int] | None, rank: int) -> None:
    configure(folder, peft_type="LORA", r=8, rank_pattern=pattern)
    assert read_adapter(folder).rank == rank


@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors"])
def test_what_is_missing_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(AdapterError, match=name):
        read_adapter(folder)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("nonsense", "cannot be read"),
        ("[]", "cannot be read"),
        ("{}", "cannot be read"),
        ('{"peft_type": "LORA"}', "cannot be read"),
        ('{"peft_type": "LORA", "r": "8"}', "rank '8'"),
        ('{"peft_type": "LORA", "r": 0}', "rank 0"),
        ('{"peft_type": "IA3", "r": 8}', "of kind 'IA3'"),
        ('{"peft_type": "LORA", "r": 8, "rank_pattern": ["q"]}', "cannot be read"),
    ],
)
def test_other_adapters_are_refused(folder: Path, config: str, message: str) -> None:
    (folder / "adapter_config.json").write_text(config)
    with pytest.raises(AdapterError, match=message):
        read_adapter(folder)
