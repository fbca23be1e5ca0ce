"""What several tests here need: fake distributions, tiny models, and Python run in a process of its own.

Everything is a fixture, so that no test imports from this file: other rooms have a `conftest` too.
"""

import hashlib
import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

import configs

ROOT = Path(configs.__file__).parent.parent


def _write_files(folder: Path, files: Mapping[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture
def write_files() -> Callable[[Path, Mapping[str, bytes]], Path]:
    """Write files into a folder and return it."""
    return _write_files


@pytest.fixture
def model_files() -> dict[str, bytes]:
    """Files that pass for a model."""
    return {"config.json": b'{"model_type": "bert"}', "model.safetensors": b"weights", "tokenizer.json": b"{}"}


@pytest.fixture
def hashes(model_files: dict[str, bytes]) -> dict[str, str]:
    """The SHA-256 of each of `model_files`."""
    return {name: hashlib.sha256(content).hexdigest() for name, content in model_files.items()}


@pytest.fixture
def model_folder(tmp_path: Path, model_files: dict[str, bytes]) -> Path:
    """A folder that passes for a model."""
    return _write_files(tmp_path / "a-model", model_files)


@pytest.fixture
def package(hashes: dict[str, str]) -> dict[str, object]:
    """A catalogue's `package` that carries `model_files`."""
    return {
        "distribution": "tiny-weights",
        "version": "1.0",
        "module": "tiny_weights",
        "folder": "model",
        "files": hashes,
    }


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Mapping[str, bytes]], Path]:
    """Put a version of `tiny-weights` on the import path, as pip would. Importing it fails, because nobody may."""
    site = tmp_path / "site-packages"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))

    def _install(version: str, files: Mapping[str, bytes]) -> Path:
        metadata = f"Metadata-Version: 2.1\nName: tiny-weights\nVersion: {version}\n"
        _write_files(site / "tiny_weights", {"__init__.py": b"raise RuntimeError('imported')"})
        _write_files(site / f"tiny_weights-{version}.dist-info", {"METADATA": metadata.encode()})
        importlib.invalidate_caches()
        return _write_files(site / "tiny_weights" / "model", files)

    return _install


@pytest.fixture
def entry() -> Callable[..., dict[str, object]]:
    """A minimal encoder named `tiny`, as it stands in a catalogue's file; fields may be added and replaced."""

    def _entry(**fields: object) -> dict[str, object]:
        return {
            "name": "tiny",
            "kind": "encoder",
            "description": "A test's encoder.",
            "parameters": 1,
            "size_mb": 1,
            "licence": "none",
            "source": "this test",
            "recipe": "minilm-l6",
            **fields,
        }

    return _entry


def _start_python(code: str, **environ: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="session")
def start_python() -> Callable[..., "subprocess.Popen[str]"]:
    """Start code in a fresh interpreter that finds this checkout; variables may be added."""
    return _start_python


@pytest.fixture
def run_python() -> Callable[..., str]:
    """The output of code in such an interpreter, which must succeed."""

    def _run(code: str, **environ: str) -> str:
        process = _start_python(code, **environ)
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        return out

    return _run
