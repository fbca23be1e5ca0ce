"""The fault injection of benchmarks/faults.py, small."""

import pytest

from benchmarks.faults import run
from benchmarks.faulty_service import FAULTS


# Clients leave at any moment, also when the connection has just been made: anyio then lets the socket go without closing it.
@pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning")
async def test_whatever_goes_wrong_each_request_ends_as_what_it_is() -> None:
    report = await run(300, in_flight=40, kills=1, seed=1)
    assert report.wrong == []
    assert sum(report.ended.values()) == report.asked == 300
    assert report.left_in_flight == 0
    assert (report.kills, report.full_disks) == (1, 1)
    assert report.ended["none", "scored"] > 75
    assert {fault for fault, _ in report.ended} == {"none", *FAULTS}
    assert report.kept > 100
