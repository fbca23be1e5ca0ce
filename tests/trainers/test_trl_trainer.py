"""TRL's own GRPOTrainer, a tiny random policy and the running service. `make test-trainers` runs it."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

if not find_spec("trl"):
    pytest.skip("needs TRL: `make test-trainers` runs this", allow_module_level=True)

import torch
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed
from trl import GRPOConfig, GRPOTrainer

from medverify.trainers.trl import AsyncRewardFunction, RewardFunction, reward_func

# What the policy can write: what the service's judge believes of it, or what puts that judge out of order.
WORDS = ["p = 0.1", "p = 0.4", "p = 0.9", "trouble"]
QUESTIONS = ["which drug", "what dose"]


def tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = ["<pad>", "<eos>", "<unk>", "which", "drug", "what", "dose", *WORDS]
    model = Tokenizer(WordLevel({word: id for id, word in enumerate(vocabulary)}, unk_token="<unk>"))
    model.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=model, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left"
    )


def policy(tokens: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    set_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokens),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        pad_token_id=tokens.pad_token_id,
        eos_token_id=tokens.eos_token_id,
        bos_token_id=None,
    )
    return LlamaForCausalLM(config)


def trained(folder: Path, function: Any, steps: int = 3) -> tuple[GRPOTrainer, bool]:
    """The trainer after some steps, and whether the policy is another one than before."""
    tokens = tokenizer()
    model = policy(tokens)
    before = [weights.detach().clone() for weights in model.parameters()]
    rows = [{"prompt": text, "question": text, "answer": "A", "options": {"A": "yes", "B": "no"}} for text in QUESTIONS]
    trainer = GRPOTrainer(
        model=model,
        processing_class=tokens,
        reward_funcs=function,
        train_dataset=Dataset.from_list(rows * 8),
        args=GRPOConfig(
            output_dir=str(folder),
            max_steps=steps,
            per_device_train_batch_size=16,
            num_generations=8,
            max_completion_length=1,
            generation_kwargs={"suppress_tokens": [0, 1, 2]},  # always a word: nothing at all would be rewarded with 0
            learning_rate=1e-2,
            weight_decay=0.0,
            loss_type="dr_grpo",
            scale_rewards="none",
            beta=0.0,
            use_cpu=True,
            bf16=False,
            report_to=[],
            logging_steps=1,
            save_strategy="no",
            seed=0,
        ),
    )
    trainer.train()
    after = list(model.parameters())
    assert all(weights.isfinite().all() for weights in after)
    return trainer, any(not torch.equal(old, new) for old, new in zip(before, after, strict=True))


@pytest.mark.parametrize("kind", [RewardFunction, AsyncRewardFunction])
def test_training_uses_what_was_judged_and_leaves_out_the_rest(
    start_service: Callable[[], Any], tmp_path: Path, kind: Callable[..., Any]
) -> None:
    trainer, changed = trained(tmp_path, kind(start_service().url, weights={"accuracy": 1.0}))
    assert changed
    rows = list(
        zip(
            trainer._logs["completion"], trainer._logs["rewards"]["medverify"], trainer._logs["advantages"], strict=True
        )
    )
    judged = [row for row in rows if "p =" in row[0]]
    lost = [row for row in rows if "trouble" in row[0]]
    assert judged
    assert lost
    for text, reward, _ in judged:
        assert reward == pytest.approx(float(text.split()[-1]))
    for _, reward, advantage in lost:
        assert reward != reward  # NaN: TRL's own mark for None
        assert advantage == 0
    first_group = [row for row in rows[:8] if row[1] == row[1]]
    mean = sum(reward for _, reward, _ in first_group) / len(first_group)
    for _, reward, advantage in first_group:
        assert advantage == pytest.approx(reward - mean, abs=1e-5)  # of the judged ones alone
    history = trainer.state.log_history[:3]
    assert all(0 < entry["medverify/not_judged"] < 1 for entry in history)
    assert set(trainer._logs["extra"]["medverify_status"]) >= {"scored", "engine_failed"}


def test_a_stopped_service_ends_no_run_and_teaches_nothing(
    start_service: Callable[[], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = start_service()
    service.stop()
    monkeypatch.setenv("MEDVERIFY_URL", service.url)
    trainer, changed = trained(tmp_path, reward_func, steps=2)
    assert not changed
    assert trainer.state.global_step == 2
    assert all(reward != reward for reward in trainer._logs["rewards"]["reward_func"])
    assert set(trainer._logs["advantages"]) == {0.0}
    assert [entry["reward_func/not_judged"] for entry in trainer.state.log_history[:2]] == [1.0, 1.0]
