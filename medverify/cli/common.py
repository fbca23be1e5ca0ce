"""What commands share: options, consoles, and the edge where errors become messages and exit codes."""

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.status import Status

from configs.adapter import AdapterError
from configs.digest import ChecksumMismatchError
from configs.load import LoadedSettings, SettingsError, load_settings
from configs.locate import ModelNotAvailableError
from configs.reasons import with_file
from configs.resolve import UnknownModelError
from configs.settings import Settings
from retrieval.passage import RetrievalError
from verifier.calibration import CalibrationError
from verifier.engines.base import EngineError
from verifier.prompt import PromptError

OK, NOT_JUDGED, BAD_INPUT = 0, 1, 2  # exit codes

out = Console()
err = Console(stderr=True)

ConfigOption = Annotated[
    str | None,
    typer.Option("--config", "-c", help="Settings file: a shipped name (laptop, openai-server, vllm) or a path."),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="One setting, such as judge.limits.max_turns=4; may be given again. Beats file and environment."
    ),
]
ModelOption = Annotated[
    str | None, typer.Option("--model", "-m", help="The judge: a name from `medverify models`, or a folder.")
]
EncoderOption = Annotated[str | None, typer.Option(help="Encoder: a name from `medverify models`, or a folder.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]

#: Faults that a user can mend; their messages say how.
EXPECTED = (
    SettingsError,
    ModelNotAvailableError,
    UnknownModelError,
    AdapterError,
    ChecksumMismatchError,
    RetrievalError,
    EngineError,
    PromptError,
    CalibrationError,
)


#: What to install for a module that is missing; any other comes with `embedded`.
_EXTRAS = {
    **dict.fromkeys(("fastapi", "uvicorn", "prometheus_client"), "serve"),
    **dict.fromkeys(("sklearn", "matplotlib", "jinja2", "datasets", "pyarrow"), "eval"),
    "rensa": "corpora",
    "vllm": "vllm",
    "peft": "train",
}


def settings_from(
    config: str | None, overrides: list[str] | None, model: str | None = None
) -> LoadedSettings[Settings]:
    """Merge defaults, file, environment and flags, or end with a message."""
    chosen = [f"judge.model={model}"] if model else []
    with mended_by_user():
        return load_settings(config, os.environ, [*chosen, *(overrides or [])])


@contextmanager
def mended_by_user() -> Iterator[None]:
    """Turn the faults that a user can mend into a message and exit code 2."""
    try:
        yield
    except EXPECTED as error:
        fail(error)
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get((error.name or "").partition(".")[0], "embedded")
        fail(f"{error.name} is not installed. Mend it with: {sys.executable} -m pip install 'medverify[{extra}]'")


def fail(message: str | Exception) -> NoReturn:
    """End with a message for people; of an error that of its file and what is wrong with it."""
    text = message if isinstance(message, str) else with_file(message)
    err.print(f"[bold red]error:[/] {_escape(text)}", highlight=False, soft_wrap=True)
    raise typer.Exit(BAD_INPUT)


@contextmanager
def waiting(message: str) -> Iterator[Status]:
    """A spinner on a terminal; nothing elsewhere."""
    with err.status(message) as status:
        yield status


def quiet_libraries() -> None:
    """Keep progress bars of model libraries out of our output, and their threads from spinning."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    if "transformers" in sys.modules or _installed("transformers"):
        from transformers.utils import logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        # peft asks transformers by an old name, when an adapter is put around a model.
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)


def _installed(module: str) -> bool:
    from importlib.util import find_spec

    return find_spec(module) is not None


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)
