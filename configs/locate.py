"""Where a model's files are: each way to get it is tried in order, and says why it failed and what mends it.

Nothing is hashed or converted here, so that it is cheap to ask for every model in the catalogue.
"""

import importlib.metadata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from configs import gguf_convert
from configs.catalogue import Entry, HubRepo, Package
from configs.digest import incomplete

# Formats of other frameworks, which some repositories carry beside the weights that we read.
_NOT_FROM_HUB = ["*.h5", "*.msgpack", "*.ot", "*.onnx", "*.gguf", "*.pth", "onnx/*", "openvino/*", "original/*"]
_TOKENIZER_ONLY = [
    "config.json",
    "tokenizer*",
    "special_tokens_map.json",
    "vocab.*",
    "merges.txt",
    "chat_template.jinja",
]


@dataclass(frozen=True, slots=True)
class Location:
    """A model on this machine, not yet checked and perhaps not yet converted."""

    origin: str  # for people
    paths: Mapping[str, Path]  # {"model": folder}, or {"query": folder, "article": folder}
    pinned: Mapping[str, str] = field(default_factory=dict)  # SHA-256 of each file, where they are known beforehand
    checked: bool = False  # `pinned` held when the files were written
    gguf: Path | None = None  # to be converted first: `paths` is empty then, and `pinned` is about this file


class WayFailedError(Exception):
    """One way to get a model did not work."""

    def __init__(self, way: str, reason: str, fix: str = "") -> None:
        super().__init__(f"{way}: {reason}" + (f"; try: {fix}" if fix else ""))
        self.way, self.reason, self.fix = way, reason, fix


class ModelNotAvailableError(Exception):
    """The model is known, but no way to get it worked."""

    def __init__(self, name: str, failures: Sequence[WayFailedError]) -> None:
        tried = "".join(f"\n- {failure}" for failure in failures)
        super().__init__(
            f"{name} is not on this machine (the folder of a copy may be given as its name). Tried:{tried}"
        )
        self.name, self.failures = name, tuple(failures)


def locate(
    entry: Entry,
    cache_dir: Path,
    *,
    download: bool = False,
    tokenizer_only: bool = False,
    on_progress: Callable[[str], None] = lambda _: None,
) -> Location:
    """The first way that works: the catalogue's folder, the installed package, the hub (its cache, unless `download`)."""
    failures: list[WayFailedError] = []
    ways: list[Callable[[], Location]] = []
    if entry.path is not None:
        folder = entry.path
        ways.append(lambda: Location(f"path {folder}", folder_paths(folder)))
    if entry.package is not None:
        package = entry.package
        ways.append(lambda: _from_package(entry.name, package, cache_dir))
    if entry.hub:
        ways.append(lambda: _from_hub(entry, download, tokenizer_only, on_progress))
    for way in ways:
        try:
            return way()
        except WayFailedError as failure:
            failures.append(failure)
    raise ModelNotAvailableError(entry.name, failures)


def folder_paths(folder: Path) -> dict[str, Path]:
    """The parts of a model kept in a folder: the folder itself, or its subfolders `query` and `article`."""
    folder = folder.expanduser()
    parts = {part: folder / part for part in ("query", "article")}
    paths = parts if all(path.is_dir() for path in parts.values()) else {"model": folder}
    for path in paths.values():
        if reason := incomplete(path):
            raise WayFailedError("path", reason)
    return paths


def _from_package(name: str, package: Package, cache_dir: Path) -> Location:
    origin = f"package {package.distribution} {package.version}"
    if package.gguf and (done := gguf_convert.find(name, package.files[package.gguf], cache_dir)):
        return Location(origin, {"model": done.folder}, done.sha256, checked=True)
    spec = find_spec(package.module)  # a top-level module is found without running any of its code
    if spec is None or not spec.submodule_search_locations:
        raise WayFailedError("package", f"{package.distribution} is not installed", package.install)
    try:
        installed = importlib.metadata.version(package.distribution)
    except importlib.metadata.PackageNotFoundError:
        installed = "of an unknown version"
    if installed != package.version:
        reason = f"{package.distribution} {installed} is installed, and only the files of {package.version} are pinned"
        raise WayFailedError("package", reason, package.install)
    folder = Path(spec.submodule_search_locations[0]) / package.folder
    if missing := [file for file in package.files if not (folder / file).is_file()]:
        reason = f"{package.distribution} lacks {', '.join(missing)}"
        raise WayFailedError("package", reason, f"{package.install} --force-reinstall")
    if package.gguf is None:
        return Location(origin, {"model": folder}, package.files)
    if lacking := [library for library in gguf_convert.REQUIRES if find_spec(library) is None]:
        reason = f"converting its GGUF file needs {', '.join(lacking)}"
        raise WayFailedError("package", reason, "pip install 'medverify[embedded]'")
    return Location(origin, {}, package.files, gguf=folder / package.gguf)


def _from_hub(entry: Entry, download: bool, tokenizer_only: bool, on_progress: Callable[[str], None]) -> Location:
    if unpinned := [repo.repo for repo in entry.hub if repo.revision is None]:
        commits = ",".join(f"<commit of {repo.repo}>" for repo in entry.hub)
        reason = f"no commit is pinned for {', '.join(unpinned)}, and weights that may change are refused"
        raise WayFailedError("hub", reason, f"naming the model {entry.name}@{commits}")
    if find_spec("huggingface_hub") is None:
        raise WayFailedError("hub", "huggingface_hub is not installed", "pip install huggingface_hub")
    paths: dict[str, Path] = {}
    for repo in entry.hub:
        if download:
            on_progress(f"fetching {repo.repo} from the hub, unless it is in its cache")
        paths[repo.part] = _snapshot(repo, download, tokenizer_only)
    return Location(f"hub {', '.join(f'{repo.repo}@{repo.revision}' for repo in entry.hub)}", paths)


def _snapshot(repo: HubRepo, download: bool, tokenizer_only: bool) -> Path:
    """The repository's folder in the hub's own cache. A whole copy there is used without asking the network."""
    from huggingface_hub.errors import GatedRepoError

    reason: str | None = None
    for from_cache in (True, False) if download else (True,):
        try:
            folder = _ask_hub(repo, tokenizer_only, from_cache)
        except GatedRepoError as error:
            reason = f"{repo.repo} wants its licence accepted on the model page"
            raise WayFailedError("hub", reason, "hf auth login") from error
        except (OSError, ValueError) as error:  # what huggingface_hub raises, for network, cache and names alike
            said = (str(error).strip() or type(error).__name__).splitlines()[0]
            reason = f"{repo.repo}: {'not in the cache of the hub' if from_cache else said}"
            continue
        reason = incomplete(folder, weights=not tokenizer_only)
        if reason is None:
            return folder
    raise WayFailedError("hub", str(reason), f"hf download {repo.repo} --revision {repo.revision}")


def _ask_hub(repo: HubRepo, tokenizer_only: bool, from_cache: bool) -> Path:
    from huggingface_hub import snapshot_download  # honours HF_HUB_OFFLINE, HF_HUB_CACHE, HF_ENDPOINT and their like

    folder = snapshot_download(
        repo.repo,
        revision=repo.revision,
        local_files_only=from_cache,
        allow_patterns=_TOKENIZER_ONLY if tokenizer_only else None,
        ignore_patterns=_NOT_FROM_HUB,
    )
    return Path(folder)
