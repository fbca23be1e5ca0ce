"""The verl recipe with verl's own configuration, agent loop worker and reward worker. `make verl-check` runs it."""

import asyncio
import pickle
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

if not find_spec("verl"):
    pytest.skip("needs verl: `make verl-check` runs this", allow_module_level=True)

import torch
import verl.trainer
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf
from rote_server import RoteClient
from transformers import LlamaForCausalLM
from verl import DataProto
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker, DictConfigWrap
from verl.experimental.reward_loop.reward_loop import RewardLoopWorker
from verl.utils.config import validate_config
from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn
from verl_setting import CONFIGS, Setting, composed

from curriculum.objective import sampled_logprobs
from curriculum.verl_recipe.agent_loop import JudgeAgentLoop, left_out
from curriculum.verl_recipe.rewards import KEYS, OUTCOME
from verifier.engines.sampling import nucleus
from verifier.engines.tokenizer import HFTokenizer
from verifier.prompt import prompt_ids
from verifier.types import StopReason

#: Keys whose values are whatever their owner wants.
FREE = ("ray_kwargs.ray_init.runtime_env.env_vars",)


def leaves(config: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in config.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and path not in FREE:
            yield from leaves(value, f"{path}.")
        else:
            yield path


@pytest.mark.parametrize("name", ["recipe", "iteration-1", "iteration-2"])
def test_verl_knows_every_key(name: str) -> None:
    """Hydra takes unknown keys of a file without a word, and a misspelt one would change nothing."""
    with initialize_config_dir(str(Path(verl.trainer.__file__).parent / "config"), version_base=None):
        known = set(leaves(OmegaConf.to_container(compose("ppo_trainer"))))
    written = OmegaConf.to_container(OmegaConf.load(CONFIGS / f"{name}.yaml"))
    mine = {path for path in leaves(written) if path.split(".")[0] not in ("hydra", "defaults")}
    assert mine - known - set(FREE) == set()


@pytest.mark.parametrize(("name", "group"), [("iteration-1", 5), ("iteration-2", 8)])
def test_the_composed_configuration_is_valid(tmp_path: Path, setting: Setting, name: str, group: int) -> None:
    config = composed(name, f"actor_rollout_ref.model.path={setting.policy}")
    validate_config(config, use_reference_policy=False, use_critic=False)
    role = config.actor_rollout_ref
    assert (role.rollout.n, role.actor.rollout_n) == (group, group)
    assert role.actor.loss_scale_factor == config.data.max_response_length == role.rollout.response_length
    assert (role.actor.clip_ratio_low, role.actor.clip_ratio_high) == (0.2, 0.3)
    assert config.data.train_batch_size == role.actor.ppo_mini_batch_size == 256
    assert role.actor.clip_ratio_c == 3.0  # verl's second clip; docs/verl.md


class Here:
    """verl's reward worker in this process, called as an actor is: what it is given is a copy."""

    def __init__(self, config: DictConfig) -> None:
        self._worker = RewardLoopWorker(config)
        self.compute_score = self

    def remote(self, data: DataProto) -> Any:
        return self._worker.compute_score(pickle.loads(pickle.dumps(data)))


def rollouts(setting: Setting, config: DictConfig, times: int) -> tuple[DataProto, AgentLoopWorker]:
    """Each row of the data set, as verl reads it, through verl's agent loop worker."""

    async def generate() -> tuple[DataProto, AgentLoopWorker]:
        worker = AgentLoopWorker(config, RoteClient(setting.policy), None, [Here(config)])
        dataset = RLHFDataset(str(setting.data), worker.tokenizer, config.data)
        batch = DataProto.from_single_dict(collate_fn([dataset[i] for i in range(len(dataset))] * times))
        return await worker.generate_sequences(batch), worker

    return asyncio.run(generate())


def test_rollouts_are_what_was_sampled_and_shown(setting: Setting) -> None:
    config = setting.config()
    data, _ = rollouts(setting, config, times=3)
    batch, others = data.batch, data.non_tensor_batch
    tokenizer = HFTokenizer(setting.policy)
    outcomes = others[OUTCOME]
    assert {outcome["searches"] for outcome in outcomes} >= {0, 1}  # by chance: it does look something up, or does not
    assert {outcome["acc"] for outcome in outcomes} == {0.0, 1.0}
    assert all(outcome["stop"] == "answered" for outcome in outcomes if outcome["format"])
    model = LlamaForCausalLM.from_pretrained(setting.policy).eval()
    for row, outcome in enumerate(outcomes):
        asked = batch["attention_mask"][row, : config.data.max_prompt_length].bool()
        prompt = batch["prompts"][row][asked]
        mask = batch["response_mask"][row].bool()
        written = batch["responses"][row][batch["attention_mask"][row, config.data.max_prompt_length :].bool()]
        case = setting.cases[row % len(setting.cases)]
        assert prompt.tolist() == prompt_ids(setting.prompt, case, tokenizer)
        text = tokenizer.decode(written.tolist())
        own = tokenizer.decode(batch["responses"][row][mask].tolist())
        assert own == text.replace(setting.evidence, "")
        assert text.count(setting.evidence) == outcome["searches"]
        assert int(mask.sum()) == outcome["policy_tokens"]
        assert others["__num_turns__"][row] == 2 + 2 * outcome["searches"]
        # The log-probabilities are those with which exactly these tokens were drawn, at top-p 0.95.
        with torch.no_grad():
            logits = model(torch.cat([prompt, written])[None]).logits[:, len(prompt) - 1 : -1]
        kept = nucleus(logits.softmax(-1), 0.95)
        drawn = sampled_logprobs(logits, written[None], kept)[0][mask[: len(written)]]
        told = batch["rollout_log_probs"][row][: len(written)]
        torch.testing.assert_close(told[mask[: len(written)]], drawn, atol=2e-4, rtol=0)
        assert told[~mask[: len(written)]].abs().sum() == 0
        full = sampled_logprobs(logits, written[None])[0][mask[: len(written)]]
        weights = (full - drawn).exp()  # what verl's rollout correction multiplies with
        assert weights.min() >= 0.95 - 1e-3
        assert weights.max() <= 1 + 1e-3


def test_rewards_go_through_verls_reward_worker(setting: Setting) -> None:
    data, _ = rollouts(setting, setting.config(), times=2)
    found = data.non_tensor_batch
    assert set(KEYS) <= set(found)
    for row, outcome in enumerate(found[OUTCOME]):
        assert data.batch["rm_scores"][row].sum().item() == found["score"][row] == outcome["score"]
        assert found["score"][row] == found["acc"][row] * found["format"][row]
        last = int(data.batch["response_mask"][row].nonzero().max())
        assert data.batch["rm_scores"][row, last] == outcome["score"]
    assert set(found["score"]) == {0.0, 1.0}
    assert all(found[key].dtype.kind == "f" for key in KEYS)


def loop(setting: Setting, worker: AgentLoopWorker, config: DictConfig, **ours: Any) -> JudgeAgentLoop:
    return JudgeAgentLoop(
        DictConfigWrap(config),
        worker.llm_client,
        worker.tokenizer,
        worker.processor,
        RLHFDataset,
        DictConfigWrap(config.data),
        **{"retrieval_url": setting.url, "prompt": str(setting.prompt_file), **ours},
    )


HOW = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "repetition_penalty": 1.0, "logprobs": True}


def test_an_outage_gives_verl_no_trajectory_and_never_a_zero(setting: Setting) -> None:
    config = setting.config()
    _, worker = rollouts(setting, config, times=1)

    async def outputs() -> list[Any]:
        fields = collate_fn([RLHFDataset(str(setting.data), worker.tokenizer, config.data)[0]])
        row = {key: value[0] for key, value in fields.items()}
        running = loop(setting, worker, config, judge={"limits": {"search_timeout_s": 1e-6}})
        return [await running.run(dict(HOW), **row) for _ in range(12)]

    before = left_out[StopReason.RETRIEVAL_ERROR]
    found = asyncio.run(outputs())
    lost = [output for output in found if output == []]
    kept = [output for output in found if output != []]
    assert left_out[StopReason.RETRIEVAL_ERROR] - before == len(lost) > 0  # those that searched
    assert kept  # those that did not
    assert all(output.extra_fields[OUTCOME]["searches"] == 0 for output in kept)


def test_a_response_never_grows_beyond_verls_length(setting: Setting) -> None:
    config = setting.config("data.max_response_length=90")
    data, _ = rollouts(setting, config, times=3)
    outcomes = data.non_tensor_batch[OUTCOME]
    # No room for the evidence: the policy asked for it, so that is its own affair, and scored.
    full = [row for row, outcome in enumerate(outcomes) if outcome["stop"] == "context_full"]
    assert full
    assert all(data.batch["rm_scores"][row].sum() == 0 for row in full)
    assert data.batch["responses"].shape[1] == 90


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("actor_rollout_ref.rollout.name=trtllm", "need vllm or sglang"),
        (
            "actor_rollout_ref.rollout.name=sglang actor_rollout_ref.rollout.skip_tokenizer_init=true",
            "skip_tokenizer_init",
        ),
    ],
)
def test_servers_that_cannot_stop_at_strings_are_refused(setting: Setting, override: str, message: str) -> None:
    _, worker = rollouts(setting, setting.config(), times=1)
    with pytest.raises(ValueError, match=message):
        loop(setting, worker, setting.config(*override.split()))
