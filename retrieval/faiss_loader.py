"""Import FAISS, after checking that exactly one distribution provides it.

`faiss-cpu`, `faiss-gpu`, `faiss-gpu-cuvs` and their kin all install the same `faiss/` folder. Two of them together leave
a mixture of files from both, which fails late and strangely or, worse, not at all.
"""

import importlib
import os
import re
from collections.abc import Sequence
from functools import cache
from importlib import metadata
from typing import Any

from retrieval.passage import FaissInstallError


def faiss_distributions(path: Sequence[str] | None = None) -> tuple[str, ...]:
    """Names of the installed distributions that provide `faiss/`, sorted; `path` takes the place of `sys.path`."""
    found = metadata.distributions() if path is None else metadata.distributions(path=list(path))
    named = ((_normalised(distribution.name or ""), distribution) for distribution in found)
    return tuple(sorted({name for name, dist in named if name.startswith("faiss") and _provides_faiss(dist)}))


def check_faiss(installed: Sequence[str]) -> None:
    """Refuse a set of FAISS distributions that cannot work.

    Raises:
        FaissInstallError: none, or more than one; the message names the command that mends it.
    """
    if not installed:
        raise FaissInstallError("FAISS is not installed; run `pip install faiss-cpu` (on a GPU: `faiss-gpu-cuvs`)")
    if len(installed) > 1:
        keep = next((name for name in installed if "gpu" in name), installed[0])
        raise FaissInstallError(
            f"{' and '.join(installed)} are installed together and have overwritten each other's files; run "
            f"`pip uninstall -y {' '.join(installed)} && pip install {keep}`, or install the other one instead"
        )


@cache  # reading what is installed takes a tenth of a second
def load_faiss() -> Any:
    """Check the installation, import FAISS and tune it.

    Raises:
        FaissInstallError: see `check_faiss`.
    """
    check_faiss(faiss_distributions())
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # or idle threads spin; read once, when FAISS is loaded
    faiss = importlib.import_module("faiss")
    # Blocks of 1,024 rows keep a batched flat search waiting for memory; with 16,384 it is about four times faster.
    if hasattr(faiss.cvar, "distance_compute_blas_database_bs"):
        faiss.cvar.distance_compute_blas_database_bs = 16384
    return faiss


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _provides_faiss(distribution: metadata.Distribution) -> bool:
    """Whether it installs the `faiss/` folder; if its list of files is lost, its name has to do."""
    files = distribution.files
    return files is None or any(file.parts[0] == "faiss" for file in files)
