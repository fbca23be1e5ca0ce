"""The least that a step is without any of our code: transformers' `generate` on one padded batch, and a plain forward and
backward pass over what came out, with an optimiser step. In the precisions that are fastest here, found out beforehand."""

import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM

from benchmarks.training.job import LEARNING_RATE, Job, Seconds, Stopwatch, asked
from configs.precision import native_bfloat16

#: Those that the hardware computes itself.
_PRECISIONS = (torch.bfloat16, torch.float32) if native_bfloat16("cpu") else (torch.float32,)


class Bare:
    """Two copies of a model: one that writes, one that learns. That the weights of one become the other's is not counted."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.writers = {dtype: _model(job, dtype).eval() for dtype in _PRECISIONS}
        self.learner = _adapted(_model(job, torch.float32), job.rank).train()
        trained = [weight for weight in self.learner.parameters() if weight.requires_grad]
        self.optimiser = torch.optim.AdamW(trained, lr=LEARNING_RATE, weight_decay=0.0)
        self.trained = trained

    def choose(self) -> None:
        """Keep the faster precision of each part."""
        ids_NT, mask_NT = self._prompts(0)
        written_NT = self.generate(ids_NT, mask_NT, _PRECISIONS[0])
        spent = {dtype: _seconds(lambda dtype=dtype: self.generate(ids_NT, mask_NT, dtype)) for dtype in _PRECISIONS}
        self.writing = min(spent, key=spent.__getitem__)
        learning = {
            dtype: _seconds(lambda dtype=dtype: self.learn(written_NT, mask_NT, dtype)) for dtype in _PRECISIONS
        }
        self.learning = min(learning, key=learning.__getitem__)
        print(f"bare: generate {_told(spent)}; forward and backward {_told(learning)}", file=sys.stderr, flush=True)

    def step(self, number: int) -> Seconds:
        ids_NT, mask_NT = self._prompts(number)
        watch = Stopwatch()
        written_NT = self.generate(ids_NT, mask_NT, self.writing)
        sampled = watch.wall()
        self.learn(written_NT, mask_NT, self.learning)
        return watch.stop(sampled, written_NT[:, ids_NT.shape[1] :].numel())

    def generate(self, ids_NT: Tensor, mask_NT: Tensor, dtype: torch.dtype) -> Tensor:
        """The prompts and as many drawn tokens behind each as the job wants."""
        count = self.job.tokens
        with torch.inference_mode():
            return self.writers[dtype].generate(  # type: ignore[no-any-return]
                ids_NT, attention_mask=mask_NT, min_new_tokens=count, max_new_tokens=count,
                do_sample=True, temperature=1.0, top_p=1.0, top_k=0,
            )  # fmt: skip

    def learn(self, written_NT: Tensor, mask_NT: Tensor, dtype: torch.dtype) -> None:
        """The gradient of sum(advantage * log p) over the drawn tokens, and a step along it."""
        count, micro = self.job.tokens, self.job.micro
        advantages_N = torch.tensor(self.job.rewards()) - 0.5
        mask_NT = torch.cat((mask_NT, torch.ones_like(written_NT[:, -count:])), 1)
        written_NT = written_NT.clone()  # what was made without gradients cannot be saved for a backward pass
        self.optimiser.zero_grad(set_to_none=True)
        low = torch.autocast("cpu", torch.bfloat16) if dtype is torch.bfloat16 else nullcontext()
        for first in range(0, len(written_NT), micro):
            part = slice(first, first + micro)
            ids_nT, mask_nT = written_NT[part], mask_NT[part]
            with low:
                logits_nCV = self.learner(
                    input_ids=ids_nT, attention_mask=mask_nT, position_ids=(mask_nT.cumsum(1) - 1).clamp(min=0),
                    use_cache=False, logits_to_keep=count + 1,
                ).logits[:, :-1]  # fmt: skip
            losses = cross_entropy(logits_nCV.float().flatten(0, 1), ids_nT[:, -count:].flatten(), reduction="none")
            ((losses.view(-1, count).sum(1) * advantages_N[part]).sum() / (len(written_NT) * count)).backward()
        torch.nn.utils.clip_grad_norm_(self.trained, 1.0)
        self.optimiser.step()

    def _prompts(self, number: int) -> tuple[Tensor, Tensor]:
        """Ids [N, T] and mask, padded on the left."""
        prompts = [example["ids"] for example in self.job.batches[number] for _ in range(self.job.rollouts)]
        longest = max(map(len, prompts))
        ids_NT = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in prompts])
        mask_NT = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        return ids_NT, mask_NT


def _model(job: Job, dtype: torch.dtype) -> Any:
    return AutoModelForCausalLM.from_pretrained(job.model, dtype=dtype, attn_implementation="sdpa")


def _adapted(model: Any, rank: int) -> Any:
    if not rank:
        return model
    from peft import LoraConfig, get_peft_model

    return get_peft_model(
        model, LoraConfig(r=rank, lora_alpha=32, target_modules="all-linear", bias="none", task_type="CAUSAL_LM")
    )


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _told(spent: dict[torch.dtype, float]) -> str:
    return ", ".join(f"{str(dtype).removeprefix('torch.')} {seconds:.1f} s" for dtype, seconds in spent.items())


def main(job: Job) -> None:
    """Answer for one step after the other."""
    side = Bare(job)
    side.choose()
    for number, answer in enumerate(asked()):
        answer(side.step(number))


if __name__ == "__main__":
    main(Job.read(sys.argv[1]))
