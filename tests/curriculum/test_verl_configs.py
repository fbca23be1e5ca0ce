"""The shipped files of the verl recipe, without verl: `make verl-check` composes them with verl's own configuration."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from configs.load import SHIPPED, load_settings
from configs.settings import JudgeSettings
from curriculum.settings import TrainingConfig
from curriculum.verl_recipe import rewards
from curriculum.verl_recipe.rows import AGENT
from curriculum.verl_recipe.verl_tool import URL
from verifier.prompt import load_prompt

FOLDER = SHIPPED / "verl"


def loaded(name: str) -> Any:
    return yaml.safe_load((FOLDER / f"{name}.yaml").read_text())


def test_every_file_is_known_here() -> None:
    assert {path.stem for path in FOLDER.glob("*.yaml")} == {"agent", "filter", "recipe", "iteration-1", "iteration-2"}


def test_the_recipe_is_the_papers() -> None:
    recipe = loaded("recipe")
    role = recipe["actor_rollout_ref"]
    actor, rollout = role["actor"], role["rollout"]
    assert (actor["clip_ratio_low"], actor["clip_ratio_high"]) == (0.2, 0.3)
    assert (actor["optim"]["lr"], actor["optim"]["lr_warmup_steps"]) == (1e-6, 10)
    assert recipe["trainer"]["total_epochs"] == 5
    assert recipe["data"]["train_batch_size"] == actor["ppo_mini_batch_size"] == 256
    assert (rollout["temperature"], rollout["top_p"]) == (1.0, 0.95)
    assert recipe["trainer"]["n_gpus_per_node"] * recipe["trainer"]["nnodes"] == 4
    # Dr.GRPO, without a KL term.
    assert actor["loss_agg_mode"] == "seq-mean-token-sum-norm"
    assert actor["loss_scale_factor"] == "${data.max_response_length}"
    assert recipe["algorithm"]["norm_adv_by_std_in_grpo"] is False
    assert (actor["use_kl_loss"], recipe["algorithm"]["use_kl_in_reward"], actor["entropy_coeff"]) == (False, False, 0)


@pytest.mark.parametrize(("name", "group"), [("iteration-1", 5), ("iteration-2", 8)])
def test_the_iterations_differ_in_group_size_and_start(name: str, group: int) -> None:
    iteration = loaded(name)
    assert iteration["actor_rollout_ref"]["rollout"]["n"] == group
    assert iteration["defaults"] == ["ppo_trainer", "recipe", "_self_"]
    paths = str(iteration["data"]["train_files"]), iteration["trainer"]["default_local_dir"]
    assert all(f"runs/verl/{name[-1]}/" in path for path in paths)
    assert iteration["data"]["val_files"] == f"runs/verl/{name[-1]}/validation.parquet"


def test_the_filter_plays_by_the_rules_of_the_training() -> None:
    settings = load_settings(FOLDER / "filter.yaml", {}, kind=TrainingConfig).settings
    (agent,), recipe = loaded("agent"), loaded("recipe")
    trained = JudgeSettings.model_validate(agent["judge"])
    judge, rollout = settings.judge, recipe["actor_rollout_ref"]["rollout"]
    assert (judge.limits, judge.top_k, judge.information_tokens) == (
        trained.limits,
        trained.top_k,
        trained.information_tokens,
    )
    assert (judge.sampling.temperature, judge.sampling.top_p) == (rollout["temperature"], rollout["top_p"])
    assert judge.vllm.max_context < rollout["max_model_len"]
    groups = [loaded(name)["actor_rollout_ref"]["rollout"]["n"] for name in ("iteration-1", "iteration-2")]
    assert [(one.group, one.budget) for one in settings.iterations] == [(group, 20_000) for group in groups]


def test_the_address_of_searches_is_taken_for_no_setting() -> None:
    """It is exported where `medverify verl filter` runs, and `MEDVERIFY_RETRIEVAL_…` would name a key of `retrieval`."""
    assert loaded("agent")[0]["retrieval_url"] == f"${{oc.env:{URL},http://127.0.0.1:8081}}"
    load_settings(FOLDER / "filter.yaml", {URL: "http://elsewhere:8081"}, kind=TrainingConfig)


def test_top_p_is_corrected_for() -> None:
    """By weights p(policy) / p(sampler), for which the sampler's log-probabilities must be of the truncated distribution."""
    recipe = loaded("recipe")
    assert recipe["algorithm"]["rollout_correction"] == {
        "rollout_is": "token",
        "rollout_is_threshold": 2.0,
        "bypass_mode": False,
    }
    rollout = recipe["actor_rollout_ref"]["rollout"]
    assert rollout["calculate_log_probs"] is True
    assert rollout["logprobs_mode"] == "processed_logprobs"
    assert rollout["skip_tokenizer_init"] is False


def test_lengths_fit_together() -> None:
    recipe, judge = loaded("recipe"), JudgeSettings.model_validate(loaded("agent")[0]["judge"])
    data, role = recipe["data"], recipe["actor_rollout_ref"]
    whole = data["max_prompt_length"] + data["max_response_length"]
    assert whole < role["rollout"]["max_model_len"] <= role["actor"]["ppo_max_token_len_per_gpu"]
    assert judge.limits.max_new_tokens <= data["max_response_length"]


def test_names_that_verl_looks_up_are_ours(repository: Path) -> None:
    (agent,) = loaded("agent")
    recipe = loaded("recipe")
    rollout = recipe["actor_rollout_ref"]["rollout"]["agent"]
    assert agent["name"] == AGENT == rollout["default_agent_loop"]
    assert (repository / rollout["agent_loop_config_path"]).samefile(FOLDER / "agent.yaml")
    assert agent["_target_"] == "curriculum.verl_recipe.agent_loop.JudgeAgentLoop"
    load_prompt(agent["prompt"])
    reward = recipe["reward"]["custom_reward_function"]
    assert reward["path"] == f"pkg://{rewards.__name__}"
    assert callable(getattr(rewards, reward["name"]))


async def test_rewards_have_the_same_float_keys_for_every_sample() -> None:
    told = {"score": 0.25, "acc": 1.0, "format": 0.25, "answered": True, "searches": 2, "turns": 3, "policy_tokens": 40}
    found = await rewards.compute_score("d", "text", "1", {rewards.OUTCOME: {**told, "stop": "answered"}, "index": 4})
    assert tuple(found) == rewards.KEYS
    assert all(type(value) is float for value in found.values())
    assert found["score"] == 0.25
    with pytest.raises(ValueError, match="default_agent_loop must be medverify_judge"):
        await rewards.compute_score("d", "text", "1", {"index": 4})
