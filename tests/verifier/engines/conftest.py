import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tiny_model import MODEL_CONTEXT, Reference, save_model, start

from verifier.engines.transformers import TransformersEngine


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    """So small a model is only held up by a second one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model's folder. Read-only: tests that change it copy it."""
    return save_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def reference(tiny: Path) -> Reference:
    return Reference(tiny)


@pytest.fixture(scope="session")
def engine(tiny: Path) -> Iterator[TransformersEngine]:
    """One engine for all tests, each in an event loop of its own; tests that change it start another."""
    started = start(tiny, max_context=MODEL_CONTEXT)
    yield started
    asyncio.run(started.aclose())
