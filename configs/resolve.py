"""From a model's name to checked files on disk, and a digest of what they contain."""

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from configs import gguf_convert
from configs.catalogue import COMMIT, Catalogue, Entry, load_catalogue
from configs.digest import WEIGHTS, check_files, digest_of, folder_digest
from configs.locate import Location, ModelNotAvailableError, WayFailedError, folder_paths, locate


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """A model that is ready to be loaded."""

    name: str
    paths: Mapping[str, Path]  # {"model": folder}, or {"query": folder, "article": folder}
    digest: str  # of weights, tokenizer and configuration
    entry: Entry | None  # None: a folder that the catalogue does not know
    origin: str  # how it was found, for people

    @property
    def path(self) -> Path:
        """The folder of a model that has just one."""
        return self.paths["model"]


class UnknownModelError(LookupError):
    """The name is neither in the catalogue nor a folder."""


def resolve(
    name: str,
    cache_dir: Path,
    *,
    catalogue: Catalogue | None = None,
    tokenizer_only: bool = False,
    verify: bool = False,
    on_progress: Callable[[str], None] = lambda _: None,
) -> ResolvedModel:
    """Find `name`: an entry, `entry@commit` (`@commit,commit` for an entry of two repositories), or a folder.

    An entry wins over a folder of the same name: write `./name` for the folder. With `tokenizer_only`, the hub is asked for
    no weights, and the digest leaves them out. `verify` hashes files whose recorded digest would be trusted otherwise.
    """
    catalogue = catalogue or load_catalogue()
    entry_name, at, commits = name.partition("@")
    entry = catalogue.by_name.get(entry_name)
    if entry is None:
        name, location = _given_folder(name, catalogue)
    else:
        name = entry.name
        if at:
            entry = _at_commits(entry, commits.split(","))
        location = locate(entry, cache_dir, download=True, tokenizer_only=tokenizer_only, on_progress=on_progress)
        if location.gguf:
            sha256 = location.pinned[location.gguf.name]
            done = gguf_convert.convert(location.gguf, sha256, name, cache_dir, on_progress)
            location = Location(location.origin, {"model": done.folder}, done.sha256, checked=True)
    digest = _checked_digest(location, cache_dir / "digests", weights=not tokenizer_only, verify=verify)
    return ResolvedModel(name, location.paths, digest, entry, location.origin)


def _given_folder(name: str, catalogue: Catalogue) -> tuple[str, Location]:
    folder = Path(name).expanduser()
    if not folder.is_dir():
        known = list(catalogue.by_name)
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)  # people leave sizes out
        hint = f" Did you mean {near[0]}?" if near else ""
        raise UnknownModelError(f"{name} is neither a folder nor a known model.{hint} Known: {', '.join(known)}")
    try:
        return folder.resolve().name, Location("path", folder_paths(folder))
    except WayFailedError as failure:
        raise ModelNotAvailableError(name, [failure]) from failure


def _at_commits(entry: Entry, commits: list[str]) -> Entry:
    """The entry with the user's commits in place of the catalogue's, and the hub as the only way to get it."""
    if len(commits) != len(entry.hub) or not all(re.fullmatch(COMMIT, commit) for commit in commits):
        reason = f"expected {len(entry.hub)} full commit hashes of 40 digits after the @, comma-separated"
        raise ModelNotAvailableError(entry.name, [WayFailedError("hub", reason)])
    hub = [repo.model_copy(update={"revision": commit}) for repo, commit in zip(entry.hub, commits, strict=True)]
    return entry.model_copy(update={"path": None, "package": None, "hub": tuple(hub)})


def _checked_digest(location: Location, memos: Path, *, weights: bool, verify: bool) -> str:
    if location.pinned:
        if verify or not location.checked:
            check_files(location.paths["model"], location.pinned)  # a small encoder: 0.1 s at every start
        return digest_of(
            {file: sha256 for file, sha256 in location.pinned.items() if weights or Path(file).suffix not in WEIGHTS}
        )
    digests = {part: folder_digest(path, memos, weights=weights, fresh=verify) for part, path in location.paths.items()}
    return digests["model"] if "model" in digests else digest_of(digests)
