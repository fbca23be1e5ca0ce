"""medverify judges medical reasoning: a verdict, a probability, a critique and the evidence behind them.

Importing this needs nothing but pydantic. The clients of a running service load with their first use, models and indexes when
`load_judge` is called.
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from verifier.types import Case, Judgment, Question, Status, Trace

if TYPE_CHECKING:
    from configs.settings import Settings
    from medverify.choosing import best_of
    from medverify.client import AsyncClient
    from medverify.sync_client import Client
    from verifier.judge import Judge

try:
    __version__ = version("medverify")
except PackageNotFoundError:  # run from a checkout that was not installed
    __version__ = "source"

__all__ = [
    "AsyncClient",
    "Case",
    "Client",
    "Judgment",
    "Question",
    "Status",
    "Trace",
    "__version__",
    "best_of",
    "load_judge",
]

_WHEN_USED = {"AsyncClient": "medverify.client", "Client": "medverify.sync_client", "best_of": "medverify.choosing"}


def __getattr__(name: str) -> Any:
    """The names that bring an HTTP client with them."""
    if name not in _WHEN_USED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_WHEN_USED[name]), name)


def load_judge(settings: "Settings | None" = None) -> "Judge":
    """Load a judge into this process; needs the `embedded` extra.

    `await judge.verify(case)` judges one case. See `medverify.assemble.load_judge` for what it raises.
    """
    from configs.settings import Settings
    from medverify.assemble import load_judge as load

    return load(settings or Settings())
