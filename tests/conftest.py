"""What the tests of several rooms share."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Without a clock: the machine that runs these tests may be busy.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of this checkout."""
    return Path(__file__).parent.parent
