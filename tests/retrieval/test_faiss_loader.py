from pathlib import Path

import pytest

from retrieval.faiss_loader import check_faiss, faiss_distributions, load_faiss
from retrieval.passage import FaissInstallError


def install(site: Path, name: str, *files: str) -> None:
    """What pip leaves behind of a distribution."""
    info = site / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    if files:
        (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))


def test_finds_what_provides_faiss(tmp_path: Path) -> None:
    install(tmp_path, "Faiss_CPU", "faiss/__init__.py")
    install(tmp_path, "faiss-gpu-cuvs", "faiss/__init__.py")
    install(tmp_path, "faiss-lost-record")
    install(tmp_path, "faiss-helpers", "faiss_helpers/__init__.py")
    install(tmp_path, "numpy", "numpy/__init__.py")
    assert faiss_distributions([str(tmp_path)]) == ("faiss-cpu", "faiss-gpu-cuvs", "faiss-lost-record")


def test_two_distributions_are_refused_with_the_command_that_mends_it() -> None:
    with pytest.raises(FaissInstallError) as refusal:
        check_faiss(("faiss-cpu", "faiss-gpu-cuvs"))
    assert "pip uninstall -y faiss-cpu faiss-gpu-cuvs && pip install faiss-gpu-cuvs" in str(refusal.value)


def test_none_is_refused_and_one_is_fine(tmp_path: Path) -> None:
    with pytest.raises(FaissInstallError, match="pip install faiss-cpu"):
        check_faiss(faiss_distributions([str(tmp_path)]))
    check_faiss(("faiss-gpu",))


def test_faiss_is_loaded_and_tuned() -> None:
    faiss = load_faiss()
    if hasattr(faiss.cvar, "distance_compute_blas_database_bs"):
        assert faiss.cvar.distance_compute_blas_database_bs == 16384
