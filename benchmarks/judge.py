"""Judging together against one after the other, and against the bare model.

    python -m benchmarks.judge [--pack PREFIX] [--per-question 16] [--cases 16] [--runs 3]

Three things are measured in turn, several times, so that a machine whose speed drifts drifts for all of them:

- `alone`: the cases judged one after the other;
- `together`: the same cases judged as one batch;
- `bare`: `model.generate` of transformers on one batch with the same number of prompt tokens and of written tokens as `together`
  had to compute, without search, parsing or anything else.
"""

import argparse
import asyncio
import statistics
import time
from pathlib import Path

from configs.settings import Settings
from medverify.assemble import load_judge
from medverify.cli.common import quiet_libraries
from verifier.engines.transformers import TransformersEngine
from verifier.examples import example_cases
from verifier.judge import Judge
from verifier.packs import read_pack
from verifier.types import Case, Judgment


def main() -> None:
    """Measure and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pack", type=Path, help="take real traces from PREFIX.questions/.traces.jsonl")
    parser.add_argument("--cases", type=int, default=16)
    parser.add_argument(
        "--per-question", type=int, default=1, help="traces of the same question; 16: all of one question"
    )
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    quiet_libraries()
    judge = load_judge(Settings(), print)
    cases = (
        [labelled.case for labelled in read_pack(options.pack, options.per_question)]
        if options.pack
        else _repeated_demo(options.cases)
    )
    asyncio.run(measure(judge, cases[: options.cases], options.runs))


def _repeated_demo(count: int) -> list[Case]:
    cases = example_cases()
    return [cases[i % len(cases)].model_copy(update={"id": str(i)}) for i in range(count)]


async def measure(judge: Judge, cases: list[Case], runs: int) -> None:
    """Time the three ways in turn and print medians and ratios."""
    await judge.warm_up()
    together = await judge.verify_together(cases)  # also a warm-up
    show_turns(together)
    times: dict[str, list[float]] = {"alone": [], "together": [], "bare": []}
    for run in range(runs):
        start = time.perf_counter()
        await judge.verify_together(cases)
        times["together"].append(time.perf_counter() - start)
        start = time.perf_counter()
        for case in cases:
            await judge.verify(case)
        times["alone"].append(time.perf_counter() - start)
        times["bare"].append(await asyncio.to_thread(bare_generate, judge, together))
        print(
            f"run {run + 1}: " + ", ".join(f"{name} {values[-1]:.1f} s" for name, values in times.items()), flush=True
        )
    medians = {name: statistics.median(values) for name, values in times.items()}
    gains = [alone / batch for alone, batch in zip(times["alone"], times["together"], strict=True)]
    costs = [batch / bare for batch, bare in zip(times["together"], times["bare"], strict=True)]
    print(f"\n| {len(cases)} cases | seconds, median of {runs} |\n|---|---|")
    for name, seconds in medians.items():
        print(f"| {name} | {seconds:.1f} |")
    print(f"| throughput together / alone | {statistics.median(gains):.2f} ({min(gains):.2f}-{max(gains):.2f}) |")
    print(f"| time together / bare generate | {statistics.median(costs):.2f} ({min(costs):.2f}-{max(costs):.2f}) |")
    await judge.aclose()


def show_turns(judgments: list[Judgment]) -> None:
    """What had to be computed, and what came out of the cache."""
    print("\n| case | prompt | evidence and tags | written | computed before decoding | taken from the cache | turns |")
    print("|---|---|---|---|---|---|---|")
    for judgment in judgments:
        use = judgment.usage
        row = (use.prompt_tokens, use.environment_tokens, use.policy_tokens, use.prefilled_tokens, use.cached_tokens)
        print(f"| {judgment.id} | " + " | ".join(map(str, row)) + f" | {judgment.turns} |")


def bare_generate(judge: Judge, judgments: list[Judgment]) -> float:
    """Seconds of `generate` on the token counts of these judgments: as many rows, mean prompt and mean written length.

    The prompt of a row is what the episode's text held at its end, less what was written: nothing is counted twice, and what
    all prompts share is computed for each row, as `generate` does it.
    """
    import torch
    from transformers import AutoModelForCausalLM

    engine = judge.engine
    assert isinstance(engine, TransformersEngine)
    usage = [judgment.usage for judgment in judgments]
    prompt = round(statistics.mean(use.prompt_tokens + use.environment_tokens for use in usage))
    written = round(statistics.mean(use.policy_tokens for use in usage))
    model = AutoModelForCausalLM.from_pretrained(engine.path, dtype=engine.dtype).to(engine.device).eval()
    ids = torch.randint(100, model.config.vocab_size, (len(usage), prompt), device=engine.device)
    with torch.inference_mode():
        model.generate(ids[:, :16], max_new_tokens=2, do_sample=False)
        start = time.perf_counter()
        model.generate(
            ids, attention_mask=torch.ones_like(ids), min_new_tokens=written, max_new_tokens=written, do_sample=False
        )
        return time.perf_counter() - start


if __name__ == "__main__":
    main()
