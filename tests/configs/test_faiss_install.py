from pathlib import Path

from configs.faiss_install import faiss_distributions, faiss_fault


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


def test_two_distributions_are_a_fault_with_the_command_that_mends_it() -> None:
    fault = faiss_fault(("faiss-cpu", "faiss-gpu-cuvs"))
    assert fault
    assert fault.fix == "pip uninstall -y faiss-cpu faiss-gpu-cuvs && pip install faiss-gpu-cuvs"


def test_none_is_a_fault_and_one_is_fine(tmp_path: Path) -> None:
    fault = faiss_fault(faiss_distributions([str(tmp_path)]))
    assert fault
    assert fault.fix == "pip install faiss-cpu"
    assert faiss_fault(("faiss-gpu",)) is None
