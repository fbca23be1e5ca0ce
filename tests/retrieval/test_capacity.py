from pathlib import Path

import pytest

from retrieval.capacity import MACHINES, PROFILES, Machine, Profile, plan

# Round figures: 1 GB of memory, 1 GB/s, and a hundred times as many operations.
ROUND = Machine("round", 1e9, 1e9, {"fp32": 100e9, "fp16": 200e9})
FP32, FP16 = Profile("fp32", 4, "fp32"), Profile("fp16", 2, "fp16")


def test_few_queries_cost_the_reading_of_every_vector() -> None:
    """1 M x 100 fp32 are 400 MB: 0.4 s at 1 GB/s, for one query as for ten."""
    one = plan(1_000_000, 100, FP32, ROUND, 1, efficiency=1, usable=1)
    ten = plan(1_000_000, 100, FP32, ROUND, 10, efficiency=1, usable=1)
    assert (one.bytes, one.devices) == (400_000_000, 1)
    assert one.seconds == ten.seconds == pytest.approx(0.4)
    assert (one.rate, ten.rate) == (pytest.approx(2.5), pytest.approx(25))


def test_many_queries_cost_the_multiplications() -> None:
    """2 x 1 M x 100 operations for each query at 100 G a second: 2 ms; so reading decides up to 200 queries."""
    one = plan(1_000_000, 100, FP32, ROUND, 1, efficiency=1, usable=1)
    many = plan(1_000_000, 100, FP32, ROUND, 1000, efficiency=1, usable=1)
    assert one.knee == many.knee == 200
    assert many.seconds == pytest.approx(2.0)
    assert many.rate == pytest.approx(500)
    at_the_knee = plan(1_000_000, 100, FP32, ROUND, 200, efficiency=1, usable=1)
    assert at_the_knee.seconds == pytest.approx(0.4)


def test_half_the_bytes_take_half_the_time_and_memory() -> None:
    full = plan(10_000_000, 100, FP32, ROUND, 1, efficiency=1, usable=1)
    half = plan(10_000_000, 100, FP16, ROUND, 1, efficiency=1, usable=1)
    assert (full.devices, half.devices) == (4, 2)
    assert full.seconds == half.seconds == pytest.approx(1.0)  # half the bytes on half the devices


def test_what_does_not_fit_is_divided_and_read_in_parallel() -> None:
    """4 GB on devices of which 0.8 GB may be filled: five, each reading 0.8 GB at half of 1 GB/s."""
    divided = plan(10_000_000, 100, FP32, ROUND, 1, efficiency=0.5, usable=0.8)
    assert divided.devices == 5
    assert divided.seconds == pytest.approx(1.6)


def test_pubmed_on_an_h200() -> None:
    """24 M x 768 fp16: 36.9 GB; 7.7 ms at 4.8 TB/s; the tensor cores are busy from 207 queries on."""
    fp16 = next(profile for profile in PROFILES if profile.name == "fp16")
    h200 = next(machine for machine in MACHINES if machine.name.startswith("H200"))
    found = plan(24_000_000, 768, fp16, h200, 64, efficiency=1)
    assert found.bytes == 36_864_000_000
    assert found.devices == 1
    assert found.seconds == pytest.approx(0.00768)
    assert found.knee == 207


@pytest.mark.parametrize(
    "wrong",
    [{"rows": 0}, {"dim": 0}, {"batch": 0}, {"efficiency": 0}, {"efficiency": 1.1}, {"usable": 0}, {"usable": 2}],
)
def test_senseless_arguments_are_refused(wrong: dict[str, float]) -> None:
    arguments = {"rows": 10, "dim": 2, "batch": 1, "efficiency": 1, "usable": 1} | wrong
    with pytest.raises(ValueError, match="at least 1"):
        plan(profile=FP32, machine=ROUND, **arguments)  # type: ignore[arg-type]


def test_the_page_on_capacity_says_what_is_computed(repository: Path) -> None:
    lines = (repository / "docs" / "capacity.md").read_text(encoding="utf-8").splitlines()
    table = [line.strip("| ").split(" | ") for line in lines if " M, " in line]
    assert len(table) == 2 * 12  # devices, then queries a second
    for number, (name, size, *told) in enumerate(table):
        millions, _, profiles = name.partition(" M, ")
        profile = next(profile for profile in PROFILES if profile.name == profiles.partition(",")[0])
        for machine, cell in zip(MACHINES, told, strict=True):
            few, many = (plan(int(millions) * 10**6, 768, profile, machine, batch) for batch in (64, 256))
            assert size == f"{few.bytes / 1e9:.1f}"
            assert cell == (str(few.devices) if number < 12 else f"{few.rate:,.0f} / {many.rate:,.0f}")
