"""Every shipped training config loads, and the paper's holds the paper's numbers."""

from pathlib import Path

import pytest

from configs.load import SHIPPED, load_settings
from curriculum.settings import TrainSettings

FILES = sorted((SHIPPED / "train").glob("*.yaml"))


def test_there_are_some() -> None:
    assert {file.stem for file in FILES} == {"closed-world", "med-tiv"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_loads_from_its_file_alone(file: Path) -> None:
    loaded = load_settings(file, {}, [], TrainSettings)
    assert loaded.settings.judge.mode == "free"
    assert {origin.split(":")[0] for origin in loaded.origins.values()} == {"default", f"file {file.name}"}


def test_the_papers_iterations() -> None:
    settings = load_settings(SHIPPED / "train" / "med-tiv.yaml", {}, [], TrainSettings).settings
    assert (settings.judge.sampling.temperature, settings.judge.sampling.top_p, settings.judge.top_k) == (1.0, 0.95, 3)
    first, second = settings.iterations
    assert (first.group, second.group) == (5, 8)
    for iteration in (first, second):
        assert (iteration.budget, iteration.epochs, iteration.batch, iteration.mini_batches) == (20_000, 5, 256, 1)
        assert (iteration.learning_rate, iteration.warm_up_steps) == (1e-6, 10)
        assert (iteration.clip_low, iteration.clip_high) == (0.2, 0.3)
        assert iteration.gates.enabled


def test_what_cannot_be_trained_is_refused() -> None:
    from configs.load import SettingsError

    file = SHIPPED / "train" / "closed-world.yaml"
    for override, reason in (
        ("judge.engine=vllm", "judge.engine must be transformers"),
        ("judge.mode=guided", "judge.mode must be free"),
        ("judge.sampling.temperature=0.0", "rollouts that are all the same teach nothing"),
        ("judge.transformers.max_sequences=4", "below a group of 8"),
        ("policy.lora.rnak=4", "unknown setting policy.lora.rnak; did you mean policy.lora.rank"),
    ):
        with pytest.raises(SettingsError, match=reason):
            load_settings(file, {}, [override], TrainSettings)
