"""Import FAISS, after checking that exactly one distribution provides it."""

import importlib
import os
from functools import cache
from typing import Any

from configs.faiss_install import faiss_distributions, faiss_fault
from retrieval.passage import FaissInstallError


@cache  # reading what is installed takes a tenth of a second
def load_faiss() -> Any:
    """Check the installation, import FAISS and tune it.

    Raises:
        FaissInstallError: none, or more than one; the message names the command that mends it.
    """
    if fault := faiss_fault(faiss_distributions()):
        raise FaissInstallError(f"{fault.problem}; run `{fault.fix}`")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # or idle threads spin; read once, when FAISS is loaded
    faiss = importlib.import_module("faiss")
    # Blocks of 1,024 rows keep a batched flat search waiting for memory; with 16,384 it is about four times faster on a
    # processor with AVX-512.
    if hasattr(faiss.cvar, "distance_compute_blas_database_bs"):
        faiss.cvar.distance_compute_blas_database_bs = 16384
    return faiss
