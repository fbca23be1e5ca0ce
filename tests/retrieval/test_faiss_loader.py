from pathlib import Path

import pytest

from retrieval.faiss_loader import load_faiss
from retrieval.passage import FaissInstallError


def test_faiss_is_loaded_and_tuned() -> None:
    faiss = load_faiss()
    if hasattr(faiss.cvar, "distance_compute_blas_database_bs"):
        assert faiss.cvar.distance_compute_blas_database_bs == 16384


def test_two_distributions_are_refused_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "faiss_gpu-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: faiss-gpu\nVersion: 1.0\n")
    (info / "RECORD").write_text("faiss/__init__.py,,\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(FaissInstallError, match="run `pip uninstall -y faiss-cpu faiss-gpu && pip install faiss-gpu`"):
        load_faiss.__wrapped__()
