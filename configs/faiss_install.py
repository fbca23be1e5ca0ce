"""Which FAISS is installed, and what is wrong with that.

`faiss-cpu`, `faiss-gpu`, `faiss-gpu-cuvs` and their kin all install the same `faiss/` folder. Two of them together leave
a mixture of files from both, which fails late and strangely or, worse, not at all.
"""

import re
from collections.abc import Sequence
from importlib import metadata
from typing import NamedTuple


class FaissFault(NamedTuple):
    """Why FAISS cannot be used, and the command that mends it."""

    problem: str
    fix: str


def faiss_distributions(path: Sequence[str] | None = None) -> tuple[str, ...]:
    """Names of the installed distributions that provide `faiss/`, sorted; `path` takes the place of `sys.path`."""
    found = metadata.distributions() if path is None else metadata.distributions(path=list(path))
    named = ((_normalised(distribution.name or ""), distribution) for distribution in found)
    return tuple(sorted({name for name, dist in named if name.startswith("faiss") and _provides_faiss(dist)}))


def faiss_fault(installed: Sequence[str]) -> FaissFault | None:
    """What keeps these distributions from working; None: there is exactly one."""
    if not installed:
        return FaissFault("FAISS is not installed", "pip install faiss-cpu")
    if len(installed) == 1:
        return None
    keep = next((name for name in installed if "gpu" in name), installed[0])
    return FaissFault(
        f"{' and '.join(installed)} are installed together and have overwritten each other's files",
        f"pip uninstall -y {' '.join(installed)} && pip install {keep}",
    )


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _provides_faiss(distribution: metadata.Distribution) -> bool:
    """Whether it installs the `faiss/` folder; if its list of files is lost, its name has to do."""
    files = distribution.files
    return files is None or any(file.parts[0] == "faiss" for file in files)
