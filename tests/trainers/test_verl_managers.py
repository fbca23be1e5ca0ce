"""verl's own reward workers and advantages with the running service. `make test-trainers` runs it."""

import asyncio
import os
from collections.abc import Callable
from importlib.util import find_spec
from math import isnan
from pathlib import Path
from typing import Any

import pytest

if not find_spec("verl"):
    pytest.skip("needs verl: `make test-trainers` runs this", allow_module_level=True)

os.environ["VERL_USE_EXTERNAL_MODULES"] = "medverify.trainers.verl_advantage"  # read when verl is imported

import numpy as np
import torch
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig
from tensordict import TensorDict
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import PreTrainedTokenizerFast
from verl import DataProto
from verl.experimental.reward_loop.reward_loop import RewardLoopWorker
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage
from verl.trainer.ppo.ray_trainer import compute_advantage
from verl.workers.reward_manager import NaiveRewardManager

from medverify.errors import NotJudgedError
from medverify.replies import COMPONENTS
from medverify.trainers import verl as medverify_verl

ANSWERS = ["p = 0.9", "p = 0.1", "trouble", "p = 0.4"]  # what two groups of four write; the third is never judged
KEYS = {"score", "acc", "judged", *COMPONENTS}


@pytest.fixture
def tokenizer(tmp_path: Path) -> PreTrainedTokenizerFast:
    words = ["<pad>", "<eos>", "<unk>", "which", *ANSWERS]
    model = Tokenizer(WordLevel({word: id for id, word in enumerate(words)}, unk_token="<unk>"))
    model.pre_tokenizer = Whitespace()
    made = PreTrainedTokenizerFast(tokenizer_object=model, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")
    made.save_pretrained(tmp_path / "policy")
    return made


def batch(tokenizer: PreTrainedTokenizerFast) -> DataProto:
    """Two groups of four: one word and the end of text each, after one word of prompt."""
    size = 2 * len(ANSWERS)
    end = tokenizer.eos_token_id
    prompts = torch.tensor([tokenizer.encode("which")] * size)
    responses = torch.tensor([[tokenizer.convert_tokens_to_ids(answer), end] for answer in ANSWERS] * 2)
    infos = [{"question": "which drug", "options": {"A": "yes", "B": "no"}} for _ in range(size)]
    return DataProto(
        batch=TensorDict(
            {
                "prompts": prompts,
                "responses": responses,
                "input_ids": torch.cat([prompts, responses], dim=1),
                "attention_mask": torch.ones(size, 3, dtype=torch.int64),
                "response_mask": torch.ones(size, 2, dtype=torch.int64),
            },
            batch_size=size,
        ),
        non_tensor_batch={
            "data_source": np.array(["medqa"] * size, dtype=object),
            "reward_model": np.array([{"ground_truth": "A"}] * size, dtype=object),
            "extra_info": np.array(infos, dtype=object),
            "uid": np.array(["a"] * 4 + ["b"] * 4, dtype=object),
        },
    )


def configured(tmp_path: Path, url: str, **options: Any) -> DictConfig:
    """verl's own configuration, with the lines that docs/trainers/verl.md tells to set."""
    spec = find_spec("verl")
    assert spec
    assert spec.submodule_search_locations
    kwargs = [f"+reward.custom_reward_function.reward_kwargs.{name}={value}" for name, value in options.items()]
    with initialize_config_dir(str(Path(spec.submodule_search_locations[0]) / "trainer" / "config"), version_base=None):
        return compose(
            "ppo_trainer",
            [
                f"actor_rollout_ref.model.path={tmp_path / 'policy'}",
                "reward.custom_reward_function.path=pkg://medverify.trainers.verl",
                "reward.custom_reward_function.name=compute_score",
                f"+reward.custom_reward_function.reward_kwargs.url={url}",
                "+reward.custom_reward_function.reward_kwargs.weights.accuracy=1.0",
                *kwargs,
                "algorithm.adv_estimator=medverify_grpo",
                "algorithm.norm_adv_by_std_in_grpo=False",
            ],
        )


def scored(config: DictConfig, data: DataProto) -> tuple[DataProto, list[dict[str, Any]]]:
    """What verl's worker makes of a batch, and the batch with the scores as its manager puts them together."""

    async def score() -> list[dict[str, Any]]:
        worker = RewardLoopWorker(config)
        found: list[dict[str, Any]] = await worker.compute_score_batch(data)
        scores = worker.reward_manager.assemble_rm_scores(data, [sample["reward_score"] for sample in found])
        data.batch["token_level_scores"] = data.batch["token_level_rewards"] = scores
        await close_clients(config)
        return found

    found = asyncio.run(score())
    return data, found


async def close_clients(config: DictConfig) -> None:
    await medverify_verl._client(config.reward.custom_reward_function.reward_kwargs.url, None).aclose()


def advantages(config: DictConfig, data: DataProto) -> list[float]:
    """Of the first token of each sample, by verl's dispatch to the estimator of its configuration."""
    name, divides = config.algorithm.adv_estimator, config.algorithm.norm_adv_by_std_in_grpo
    data = compute_advantage(data, name, norm_adv_by_std_in_grpo=divides, config=config.algorithm)
    return [float(row[0]) for row in data.batch["advantages"]]


def test_verl_scores_with_the_service_and_leaves_out_what_was_not_judged(
    start_service: Callable[[], Any], tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    config = configured(tmp_path, start_service().url)
    data, found = scored(config, batch(tokenizer))
    assert all(set(sample["reward_extra_info"]) == KEYS for sample in found)
    assert all(type(value) is float for sample in found for value in sample["reward_extra_info"].values())
    scores = [sample["reward_score"] for sample in found]
    assert scores[:2] == [pytest.approx(0.9), pytest.approx(0.1)]
    assert isnan(scores[2])
    assert isnan(scores[6])
    assert [sample["reward_extra_info"]["judged"] for sample in found] == [1, 1, 0, 1] * 2
    mean = (0.9 + 0.1 + 0.4) / 3
    expected = [0.9 - mean, 0.1 - mean, 0.0, 0.4 - mean]
    assert advantages(config, data) == pytest.approx(expected * 2, abs=1e-5)


def test_with_verls_own_advantage_a_missing_score_is_never_a_number(
    start_service: Callable[[], Any], tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    config = configured(tmp_path, start_service().url)
    data, _ = scored(config, batch(tokenizer))
    config.algorithm.adv_estimator = "grpo"
    assert all(map(isnan, advantages(config, data)))  # the update is not finite, and verl's engine skips it


@pytest.mark.parametrize("divides", [True, False])
def test_where_all_are_judged_our_advantage_is_verls(
    start_service: Callable[[], Any], tokenizer: PreTrainedTokenizerFast, tmp_path: Path, divides: bool
) -> None:
    config = configured(tmp_path, start_service().url)
    config.algorithm.norm_adv_by_std_in_grpo = divides
    data, _ = scored(config, batch(tokenizer).select_idxs([0, 1, 3, 4, 5, 7]))
    theirs, _ = compute_grpo_outcome_advantage(
        data.batch["token_level_rewards"].clone(),
        data.batch["response_mask"],
        data.non_tensor_batch["uid"],
        norm_adv_by_std_in_grpo=divides,
    )
    assert advantages(config, data) == pytest.approx(theirs[:, 0].tolist(), abs=1e-6)


def test_a_stopped_service_masks_every_sample(
    start_service: Callable[[], Any], tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    service = start_service()
    service.stop()
    config = configured(tmp_path, service.url)
    data, found = scored(config, batch(tokenizer))
    assert all(isnan(sample["reward_score"]) for sample in found)
    assert {sample["reward_extra_info"]["judged"] for sample in found} == {0.0}
    assert advantages(config, data) == [0.0] * 8


def test_a_missing_score_can_be_an_error_instead(
    start_service: Callable[[], Any], tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    config = configured(tmp_path, start_service().url, not_judged="raise")
    with pytest.raises(NotJudgedError, match="engine_failed"):
        scored(config, batch(tokenizer))


def test_the_manager_that_does_not_await(start_service: Callable[[], Any], tokenizer: PreTrainedTokenizerFast) -> None:
    service = start_service()

    def score(**sample: Any) -> dict[str, float]:
        return medverify_verl.compute_score_blocking(**sample, url=service.url, weights={"accuracy": 1.0})

    manager = NaiveRewardManager(tokenizer, num_examine=0, compute_score=score)
    found = manager(batch(tokenizer), return_dict=True)
    scores = found["reward_tensor"][:, -1].tolist()
    assert scores[:2] == [pytest.approx(0.9), pytest.approx(0.1)]
    assert isnan(scores[2])
    assert found["reward_extra_info"]["judged"] == [1, 1, 0, 1] * 2
    service.stop()
    assert manager(batch(tokenizer))[:, -1].isnan().all()
