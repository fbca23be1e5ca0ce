"""verl's own trainer through whole steps with the recipe, on a CPU; its checkpoint as our judge. `make verl-check` runs it."""

import json
import os
import re
import signal
import subprocess
import sys
from importlib.util import find_spec
from math import isfinite
from pathlib import Path

import pytest

if not find_spec("verl"):
    pytest.skip("needs verl: `make verl-check` runs this", allow_module_level=True)

import yaml
from conftest import SERVER_PYTHON
from verl_setting import CONFIGS, Setting

PATIENCE_S = 900
MODULES = "verl_on_cpu,medverify.trainers.verl_advantage"
#: What differs from the shipped iteration for want of a GPU, and for a policy of 400 words.
SMALL = (
    "trainer.device=cpu",
    "trainer.n_gpus_per_node=1",
    "trainer.val_before_train=false",
    "trainer.test_freq=-1",
    "data.train_batch_size=4",
    "data.max_prompt_length=128",
    "data.max_response_length=512",
    "data.dataloader_num_workers=0",
    "actor_rollout_ref.rollout.max_model_len=700",
    "actor_rollout_ref.rollout.n=4",
    "actor_rollout_ref.actor.ppo_mini_batch_size=4",
    "actor_rollout_ref.actor.strategy=fsdp2",
    "actor_rollout_ref.actor.use_torch_compile=false",
    "actor_rollout_ref.model.use_remove_padding=false",
    "+actor_rollout_ref.model.override_config.attn_implementation=eager",
    "actor_rollout_ref.actor.use_dynamic_bsz=false",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4",
    "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=false",
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=4",
    "actor_rollout_ref.actor.optim.lr=1e-4",
    "actor_rollout_ref.actor.optim.lr_warmup_steps=0",
    "actor_rollout_ref.rollout.agent.num_workers=1",
    "reward.num_workers=1",
    "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
    "ray_kwargs.ray_init.num_cpus=8",
    "+ray_kwargs.ray_init.num_gpus=1",
)


def trained(setting: Setting, folder: Path, agent: Path, steps: int) -> list[dict[str, float]]:
    """Run verl's entry point as docs/verl.md has it; what it logged of each step."""
    here, environment = Path(__file__).parent, "ray_kwargs.ray_init.runtime_env.env_vars"
    search = f"{here}:{here.parents[1]}"
    command = [
        *(sys.executable, "-m", "verl.trainer.main_ppo", "--config-path", str(CONFIGS), "--config-name", "iteration-1"),
        *SMALL,
        f"actor_rollout_ref.model.path={setting.policy}",
        f"actor_rollout_ref.rollout.agent.agent_loop_config_path={agent}",
        f"data.train_files={setting.data}",
        f"data.val_files={setting.data}",
        f"trainer.total_training_steps={steps}",
        f"trainer.save_freq={steps}",
        f"trainer.default_local_dir={folder / 'checkpoints'}",
        f"hydra.run.dir={folder / 'hydra'}",
        f'{environment}.VERL_USE_EXTERNAL_MODULES="{MODULES}"',
        f"+{environment}.VERL_PLATFORM=cpu",
        f"+{environment}.PYTHONPATH={search}",
        f'+{environment}.OMP_NUM_THREADS="1"',
    ]
    mine = {"VERL_USE_EXTERNAL_MODULES": MODULES, "VERL_PLATFORM": "cpu", "PYTHONPATH": search, "OMP_NUM_THREADS": "1"}
    log = folder / "log.txt"
    with log.open("w") as file:
        running = subprocess.Popen(
            command, stdout=file, stderr=subprocess.STDOUT, env={**os.environ, **mine}, start_new_session=True
        )
        try:
            code = running.wait(PATIENCE_S)
        finally:
            if running.poll() is None:
                os.killpg(running.pid, signal.SIGKILL)
    text = log.read_text()
    assert code == 0, text[-4000:]
    return steps_of(text)


def steps_of(log: str) -> list[dict[str, float]]:
    """The metrics that verl's console logger writes, a line for each step."""
    return [
        {name: float(number) for name, number in re.findall(r"(\S+):(?:np\.\w+\()?(-?[\d.]+(?:e-?\d+)?|nan|inf)", line)}
        for line in log.splitlines()
        if re.search(r"\bstep:\d+ - ", line)
    ]


def test_two_steps_and_the_checkpoint_is_a_judge(setting: Setting, tmp_path: Path, repository: Path) -> None:
    steps = trained(setting, tmp_path, setting.folder / "agent.yaml", steps=2)
    assert [step["training/global_step"] for step in steps] == [1, 2]
    for step in steps:
        assert isfinite(step["actor/grad_norm"])
        assert 0 <= step["critic/score/mean"] <= 1
        assert step["num_turns/min"] == 2 < step["num_turns/max"]  # some looked something up, some did not
        # One update for each batch: the ratio is 1, and neither clip acts.
        assert step["actor/pg_clipfrac"] == step["actor/pg_clipfrac_lower"] == 0
        # The policy's probability by the sampler's, whose top-p is 0.95.
        assert 0.94 < step["rollout_corr/rollout_is_mean"] <= 1
    assert max(step["actor/grad_norm"] for step in steps) > 0

    shards, judge = tmp_path / "checkpoints" / "global_step_2" / "actor", tmp_path / "judge"
    merge = ["verl.model_merger", "merge", "--backend", "fsdp", "--local_dir", str(shards), "--target_dir", str(judge)]
    subprocess.run([sys.executable, "-m", *merge], check=True, capture_output=True)
    case = tmp_path / "case.json"
    case.write_text(setting.cases[0].model_dump_json(exclude_none=True))
    told = subprocess.run(
        [
            *(os.environ[SERVER_PYTHON], "-c", "from medverify.cli import main; main()"),
            *("verify", str(case), "--json", "--model", str(judge)),
            *("--set", f"retrieval.index={setting.url}", "--set", f"judge.prompt={setting.prompt_file}"),
            *("--set", "judge.transformers.max_context=1024"),
        ],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(repository)},
    )
    judgment = json.loads(told.stdout)
    assert judgment["status"] == "scored"
    assert judgment["verdict"] in (0, 1)


def test_the_trainer_goes_on_without_rollouts_that_an_outage_hit(setting: Setting, tmp_path: Path) -> None:
    """No search is answered in time: who searched is left out, who did not is trained on, and no 0 is made up."""
    (agent,) = yaml.safe_load((setting.folder / "agent.yaml").read_text())
    agent["judge"]["limits"]["search_timeout_s"] = 1e-6
    (tmp_path / "agent.yaml").write_text(yaml.safe_dump([agent]))
    (step,) = trained(setting, tmp_path, tmp_path / "agent.yaml", steps=1)
    log = (tmp_path / "log.txt").read_text()
    lost = log.count("no trajectory (retrieval_error")
    assert 0 < lost < 16
    assert f"Upsampled batch from {16 - lost} to 16" in log  # with rows that have neither reward nor mask
    assert step["num_turns/max"] == 2  # nobody searched of those that are left
    assert isfinite(step["critic/score/mean"])
    assert isfinite(step["actor/grad_norm"])
