"""TRL's side: its GRPOTrainer with the same model, prompts, adapter and token counts. Runs in TRL's own environment."""

import sys
from collections.abc import Callable, Iterator
from tempfile import TemporaryDirectory
from typing import Any

from datasets import Dataset
from peft import LoraConfig
from transformers import AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from benchmarks.training.job import LEARNING_RATE, Job, Seconds, Stopwatch, asked


class _Timed(GRPOTrainer):
    """Notes how long sampling took."""

    sampled_s = 0.0
    written = 0

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        watch = Stopwatch()
        made = super()._generate_and_score_completions(inputs)
        self.sampled_s = watch.wall()
        self.written = int(made["completion_mask"].sum())
        return made


class _Asked(TrainerCallback):
    """Waits before each step until it is asked for, and answers after it."""

    def __init__(self, asked: Iterator[Callable[[Seconds], None]]) -> None:
        self.asked = asked
        self.trainer: _Timed | None = None
        self.watch = Stopwatch()
        self.answer: Callable[[Seconds], None] = print

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self.answer = next(self.asked)
        self.watch = Stopwatch()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        assert self.trainer is not None
        self.answer(self.watch.stop(self.trainer.sampled_s, self.trainer.written))


def main(job: Job, *, bf16: bool) -> None:
    """Answer for one step after the other."""
    tokenizer = AutoTokenizer.from_pretrained(job.model)
    examples = [example for batch in job.batches for example in batch]
    texts = [tokenizer.decode(example["ids"]) for example in examples]
    if tokenizer(text=texts)["input_ids"] != [example["ids"] for example in examples]:
        raise SystemExit("TRL would read other prompts")
    callback = _Asked(asked())
    rewards = job.rewards()
    lora = LoraConfig(r=job.rank, lora_alpha=32, target_modules="all-linear", bias="none", task_type="CAUSAL_LM")
    with TemporaryDirectory() as folder:
        trainer = _Timed(
            model=job.model,
            processing_class=tokenizer,
            reward_funcs=lambda completions, **_: rewards,
            train_dataset=Dataset.from_list([{"prompt": text} for text in texts]),
            peft_config=lora if job.rank else None,
            callbacks=[callback],
            args=GRPOConfig(
                output_dir=folder,
                max_steps=len(job.batches),
                per_device_train_batch_size=job.micro,
                gradient_accumulation_steps=len(rewards) // job.micro,
                num_generations=job.rollouts,
                max_completion_length=job.tokens,
                generation_kwargs={"min_new_tokens": job.tokens},
                temperature=1.0,
                learning_rate=LEARNING_RATE,
                weight_decay=0.0,
                loss_type="dr_grpo",
                scale_rewards="none",
                beta=0.0,
                epsilon=0.2,
                epsilon_high=0.3,
                use_cpu=True,
                bf16=bf16,
                gradient_checkpointing=False,  # it spares memory and costs time
                shuffle_dataset=False,
                disable_tqdm=True,
                report_to=[],
                logging_strategy="no",
                save_strategy="no",
            ),
        )
        callback.trainer = trainer
        trainer.train()


if __name__ == "__main__":
    main(Job.read(sys.argv[1]), bf16=sys.argv[2] == "bfloat16")
