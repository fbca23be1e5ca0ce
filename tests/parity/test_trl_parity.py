"""Our objective against the loss of TRL 1.16's GRPOTrainer (`dr_grpo`), on the same model and rollouts. `make parity` runs it."""

import math
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

if not find_spec("trl"):
    pytest.skip("needs TRL: `make parity` runs this", allow_module_level=True)

import torch
from batches import CLIP, SHAPES, batch
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed
from trl import GRPOConfig, GRPOTrainer

from curriculum.objective import Surrogate, advantages, sampled_logprobs, surrogate

LENGTH = 70  # the most tokens of a completion: TRL's constant
PROMPT = 3
WORDS = [f"w{number}" for number in range(20)]
REWARDS = {word: None if number % 5 == 4 else number / 20 for number, word in enumerate(WORDS)}


def tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = ["<pad>", "<eos>", "<unk>", *WORDS]
    model = Tokenizer(WordLevel({word: id for id, word in enumerate(vocabulary)}, unk_token="<unk>"))
    model.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=model, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left"
    )


def reward(completions: list[str], **_: Any) -> list[float | None]:
    return [REWARDS[text.split()[0]] for text in completions]


@pytest.fixture
def trainer(tmp_path: Path) -> GRPOTrainer:
    set_seed(0)
    tokens = tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokens),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        pad_token_id=tokens.pad_token_id,
        eos_token_id=tokens.eos_token_id,
        bos_token_id=None,
    )
    return GRPOTrainer(
        model=LlamaForCausalLM(config).double(),
        processing_class=tokens,
        reward_funcs=reward,
        train_dataset=Dataset.from_list([{"prompt": "w1 w2"}, {"prompt": "w3 w4"}] * 8),
        args=GRPOConfig(
            output_dir=str(tmp_path),
            max_steps=1,
            per_device_train_batch_size=16,
            num_generations=8,
            max_completion_length=LENGTH,
            loss_type="dr_grpo",
            scale_rewards="none",
            epsilon=CLIP["clip_low"],
            epsilon_high=CLIP["clip_high"],
            beta=0.0,
            use_cpu=True,
            bf16=False,
            report_to=[],
            save_strategy="no",
            seed=0,
        ),
    )


def rollouts(shape: tuple[int, int, int, float]) -> dict[str, Tensor]:
    """TRL's inputs: ids, masks of padding and of environment tokens, advantages; the sampler's part comes from the model."""
    given = batch(*shape)
    count, length = given.policy.shape
    generator = torch.Generator().manual_seed(7)
    inside = given.policy.flip(1).cumsum(1).flip(1) > 0  # up to the policy's last token
    return {
        "prompt_ids": torch.randint(3, 23, (count, PROMPT), generator=generator),
        "prompt_mask": torch.ones(count, PROMPT, dtype=torch.int64),
        "completion_ids": torch.randint(3, 23, (count, length), generator=generator),
        "completion_mask": inside.to(torch.int64),
        "tool_mask": given.policy.to(torch.int64),
        "advantages": given.gains,
        "moved": given.logprobs - given.sampler,
    }


def logprobs(model: Any, inputs: dict[str, Tensor]) -> Tensor:
    """Ours, of the completion's tokens."""
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
    logits = model(input_ids=ids, attention_mask=mask).logits[:, PROMPT - 1 : -1]
    return sampled_logprobs(logits, inputs["completion_ids"])


def sampled(trainer: GRPOTrainer, shape: tuple[int, int, int, float]) -> dict[str, Tensor]:
    """Rollouts of a policy from which the model has moved by the batch's log-ratios."""
    inputs = rollouts(shape)
    with torch.no_grad():
        inputs["old_per_token_logps"] = logprobs(trainer.model, inputs) - inputs.pop("moved")
    return inputs


def gradients(trainer: GRPOTrainer) -> list[Tensor]:
    found = [weights.grad.clone() for weights in trainer.model.parameters() if weights.grad is not None]
    trainer.model.zero_grad()
    assert found
    return found


def ours(trainer: GRPOTrainer, inputs: dict[str, Tensor], count: int) -> Surrogate:
    return surrogate(
        logprobs(trainer.model, inputs),
        inputs["old_per_token_logps"],
        inputs["advantages"],
        (inputs["completion_mask"] * inputs["tool_mask"]).bool(),
        length=LENGTH,
        rollouts=count,
        **CLIP,
    )


def theirs(trainer: GRPOTrainer, inputs: dict[str, Tensor], micro_batches: int = 1) -> Tensor:
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = micro_batches
    loss: Tensor = trainer._compute_loss(trainer.model, inputs)
    return loss


def rows(inputs: dict[str, Tensor], part: slice) -> dict[str, Tensor]:
    return {name: values[part] for name, values in inputs.items()}


@pytest.mark.parametrize("shape", SHAPES)
def test_loss_gradient_and_clipped_fraction_are_trls(trainer: GRPOTrainer, shape: tuple[int, int, int, float]) -> None:
    inputs = sampled(trainer, shape)
    mine = ours(trainer, inputs, shape[0])
    mine.loss.backward()
    my_grads = gradients(trainer)
    their_loss = theirs(trainer, inputs)
    their_loss.backward()
    torch.testing.assert_close(mine.loss, their_loss)
    for my_grad, their_grad in zip(my_grads, gradients(trainer), strict=True):
        torch.testing.assert_close(my_grad, their_grad)
    assert mine.clipped / mine.tokens == pytest.approx(trainer._metrics["train"]["clip_ratio/region_mean"][-1])


def test_equal_micro_batches_add_up_on_both_sides(trainer: GRPOTrainer) -> None:
    inputs = sampled(trainer, SHAPES[1])
    ours(trainer, inputs, 8).loss.backward()
    whole = gradients(trainer)
    for start in (0, 2, 4, 6):
        theirs(trainer, rows(inputs, slice(start, start + 2)), micro_batches=4).backward()
    for mine, their in zip(whole, gradients(trainer), strict=True):
        torch.testing.assert_close(mine, their)


def test_advantages_are_trls(trainer: GRPOTrainer) -> None:
    """Of a real step: samples without a reward are in no group's mean, and have no advantage."""
    trainer.args.max_completion_length = trainer.max_completion_length = 1
    trainer.generation_config.max_new_tokens = 1
    trainer.generation_config.suppress_tokens = [0, 1, 2]
    trainer.train()
    scores = torch.tensor(trainer._logs["rewards"]["reward"])
    expected = torch.cat([advantages(group, group.isfinite()) for group in scores.split(8)])
    assert not scores.isfinite().all()
    torch.testing.assert_close(torch.tensor(list(trainer._logs["advantages"])), expected)


# ---- what differs by definition; docs/verl.md lists it -----------------------------------------------------------------


def test_differs_unequal_micro_batches_weigh_their_rollouts_unequally(trainer: GRPOTrainer) -> None:
    """TRL divides by the rows of each micro-batch and by their number, so a row alone counts as much as three together."""
    inputs = sampled(trainer, SHAPES[1])
    parts = slice(0, 6), slice(6, 8)
    sums = [ours(trainer, rows(inputs, part), 1).loss for part in parts]
    found = [theirs(trainer, rows(inputs, part), micro_batches=2) for part in parts]
    torch.testing.assert_close(found, [sums[0] / 6 / 2, sums[1] / 2 / 2])
    torch.testing.assert_close(ours(trainer, inputs, 8).loss, sum(sums) / 8)


def test_differs_rollouts_without_a_reward_stay_in_trls_divisor(trainer: GRPOTrainer) -> None:
    inputs = sampled(trainer, SHAPES[1])
    inputs["advantages"][6:] = 0  # as it gives those that were not judged
    torch.testing.assert_close(theirs(trainer, inputs), ours(trainer, inputs, 6).loss * 6 / 8)


def test_neither_has_a_second_clip() -> None:
    """As verl has (`test_verl_parity.py`); TRL's is off unless `delta` is given."""
    assert GRPOConfig(output_dir="unused", use_cpu=True, bf16=False).delta is None
    one = torch.tensor([[math.log(4.0)]])
    found = surrogate(
        one, one * 0, torch.tensor([-1.0]), torch.ones(1, 1, dtype=torch.bool), **CLIP, length=1, rollouts=1
    )
    assert found.loss.item() == pytest.approx(4)
