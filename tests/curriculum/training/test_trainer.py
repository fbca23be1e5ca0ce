"""A whole training run on a tiny model: it learns, and a run that was cut off goes on to the same numbers."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tiny_lessons import examples, settings, short, tiny_model, train

from configs.appended import ResumeError
from curriculum.curves import draw_curves
from curriculum.settings import HeldOut, RunSettings
from curriculum.trainer import Told


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def learned(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that went to its end."""
    folder = tmp_path_factory.mktemp("runs") / "learned"
    train(model, folder, settings())
    return folder


@pytest.fixture(scope="module")
def unbroken(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("runs") / "unbroken"
    train(model, folder, short())
    return folder


def rows(folder: Path, stage: str = "") -> list[dict[str, Any]]:
    """Lines of metrics, without the times."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_bytes().splitlines()]
    return [
        {name: value for name, value in line.items() if name != "seconds"} for line in lines if stage in line["stage"]
    ]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "judge" / "model.safetensors")


def test_the_warm_up_teaches_the_form_and_reinforcement_the_verdict(learned: Path) -> None:
    """The demonstrations' verdicts have nothing to do with their traces: that comes from the reward alone."""
    held_out = {(row["stage"], row["step"]): row for row in rows(learned) if "held_out_accuracy" in row}
    assert held_out["warm-up", 0]["held_out_format"] == 0
    before, after = held_out["iteration-1", 0], held_out["iteration-1", 12]
    assert before["held_out_format"] >= 0.9
    assert before["held_out_accuracy"] <= 0.7
    assert after["held_out_accuracy"] >= before["held_out_accuracy"] + 0.2
    steps = [row for row in rows(learned, "iteration-1") if "reward" in row]
    assert len(steps) == 24
    assert sum(row["reward"] for row in steps[-4:]) > sum(row["reward"] for row in steps[:4]) + 1
    assert steps[0]["kl_to_start"] == pytest.approx(0, abs=1e-6)
    assert steps[20]["kl_to_start"] > 0.001
    # One step a batch, in the sampler's own precision: the policy that learns is the policy that drew.
    assert all(row["kl_to_sampler"] < 1e-6 and row["clipped"] == 0 for row in steps if row["lessons"])


def test_the_filter_keeps_what_the_policy_gets_right_and_wrong(learned: Path) -> None:
    [row] = rows(learned, "selection-1")
    assert row["examples"] == 32
    assert row["right"] == 16
    assert row["candidates"] >= 32
    assert row["kept"] + row["easy"] + row["impossible"] + row["unjudged"] == pytest.approx(1)
    waves = [json.loads(line) for line in (learned / "selection-1.jsonl").read_bytes().splitlines()]
    tried = [candidate for wave in waves for candidate in wave["candidates"]]
    assert len(tried) == row["candidates"]
    assert sum(len(set(one["correct"])) == 2 for one in tried) == round(row["kept"] * len(tried))


def test_the_folder_holds_settings_episodes_and_a_judge(learned: Path, model: Path) -> None:
    assert json.loads((learned / "config.json").read_bytes()) == json.loads(settings().model_dump_json())
    episodes = [json.loads(line) for line in (learned / "episodes.jsonl").read_bytes().splitlines()]
    assert len(episodes) == 2 * 24
    assert {episode["label"] for episode in episodes} == {0, 1}
    assert (learned / "judge" / "tokenizer.json").is_file()
    before = load_file(model / "model.safetensors")
    assert any(not torch.equal(weight, before[name]) for name, weight in weights(learned).items())
    assert draw_curves(rows(learned), learned / "curves.svg")
    assert "Reward" in (learned / "curves.svg").read_text() or (learned / "curves.svg").stat().st_size > 10_000


class _CutOffError(Exception):
    pass


def test_cut_off_after_any_event_it_goes_on_to_the_same_numbers(model: Path, unbroken: Path, tmp_path: Path) -> None:
    """One folder, cut off once after the first event of its process, then after the second, and so on."""
    folder, cuts = tmp_path / "cut", 0

    def tell(_: Told) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise _CutOffError

    for allowed in range(1, 100):
        left = allowed
        try:
            train(model, folder, short(), tell)
            break
        except _CutOffError:
            cuts += 1
    assert cuts > 4
    assert rows(folder) == rows(unbroken)
    assert (folder / "episodes.jsonl").read_bytes() == (unbroken / "episodes.jsonl").read_bytes()
    assert all(torch.equal(weight, weights(unbroken)[name]) for name, weight in weights(folder).items())


def test_killed_it_goes_on_to_the_same_numbers(model: Path, unbroken: Path, tmp_path: Path) -> None:
    script = Path(__file__).with_name("train_until_killed.py")
    command = [sys.executable, str(script), str(model), str(tmp_path / "killed")]
    environment = {**os.environ, "PYTHONPATH": ":".join(filter(None, sys.path))}
    for line in ("warm-up 4", "iteration-1 2"):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        assert process.stdout is not None
        for told in process.stdout:
            if told.strip() == line:
                process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, process.stderr.read() if process.stderr else ""
        process.stdout.close()
        assert process.stderr is not None
        process.stderr.close()
    subprocess.run(command, check=True, env=environment, capture_output=True)
    assert rows(tmp_path / "killed") == rows(unbroken)
    assert all(torch.equal(weight, weights(unbroken)[name]) for name, weight in weights(tmp_path / "killed").items())


def test_a_run_that_is_over_stays_as_it_is(model: Path, unbroken: Path) -> None:
    before, kept = rows(unbroken), weights(unbroken)
    train(model, unbroken, short())
    assert rows(unbroken) == before
    assert all(torch.equal(weight, kept[name]) for name, weight in weights(unbroken).items())


def test_other_settings_are_refused_and_what_does_not_matter_may_change(model: Path, unbroken: Path) -> None:
    other = short().model_copy(update={"warm_up": settings().warm_up})
    with pytest.raises(ResumeError, match=r"begun with other settings \(warm_up\)"):
        train(model, unbroken, other)
    train(model, unbroken, short().model_copy(update={"run": RunSettings(checkpoint_every=50, kl_every=1)}))


def test_two_stages_draw_different_examples(unbroken: Path) -> None:
    waves = [json.loads(line) for line in (unbroken / "selection-2.jsonl").read_bytes().splitlines()]
    second = {candidate["id"] for wave in waves for candidate in wave["candidates"]}
    episodes = [json.loads(line) for line in (unbroken / "episodes.jsonl").read_bytes().splitlines()]
    first = {episode["judgment"]["id"] for episode in episodes if episode["stage"] == "iteration-1"}
    assert first
    assert not first & second


def test_a_spent_pool_is_told(model: Path, tmp_path: Path) -> None:
    train(model, tmp_path / "run", short(), pool=examples(6))
    first = [row for row in rows(tmp_path / "run", "iteration-1") if "reward" in row]
    assert len(first) == 1  # six examples, once each, four a step
    [second] = rows(tmp_path / "run", "selection-2")
    assert second["pool_spent"] == 1
    assert second["examples"] == 0
    assert not [row for row in rows(tmp_path / "run", "iteration-2") if "reward" in row]


def test_what_is_held_out_may_not_be_trained_on() -> None:
    config = settings().model_copy(update={"held_out": HeldOut(pack=Path("packs/mine"))})
    assert config.guarded_pool.overlap.packs == (Path("packs/mine"),)
    assert config.pool.overlap.packs == ()
    assert settings().guarded_pool == settings().pool
