"""medverify judges medical reasoning: a verdict, a probability, a critique and the evidence behind them.

Importing this needs nothing but pydantic; models and indexes are loaded when `load_judge` is called.
"""

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from verifier.types import Case, Judgment, Question, Status, Trace

if TYPE_CHECKING:
    from configs.settings import Settings
    from verifier.judge import Judge

try:
    __version__ = version("medverify")
except PackageNotFoundError:  # run from a checkout that was not installed
    __version__ = "source"

__all__ = ["Case", "Judgment", "Question", "Status", "Trace", "__version__", "load_judge"]


def load_judge(settings: "Settings | None" = None) -> "Judge":
    """Load a judge into this process; needs the `embedded` extra.

    `await judge.verify(case)` judges one case. See `medverify.assemble.load_judge` for what it raises.
    """
    from configs.settings import Settings
    from medverify.assemble import load_judge as load

    return load(settings or Settings())
