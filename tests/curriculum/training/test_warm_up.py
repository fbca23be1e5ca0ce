"""Demonstrations as tokens: the episode that they show, with the verdict's digit weighed."""

import json
from pathlib import Path

import pytest
import torch
from tiny_lessons import tiny_model
from tiny_model import start
from verifier_fakes import Turns, judge
from verifier_fakes import engine as scripted
from worlds import small_world

from curriculum.closed_world.demonstrations import demonstrate, own_evidence
from curriculum.closed_world.files import demonstration_row
from curriculum.closed_world.questions import questions
from curriculum.closed_world.traces import traces
from curriculum.policy.policy import Policy
from curriculum.policy.rows import Row
from curriculum.settings import Lora, PolicySettings
from curriculum.warm_up import Demonstration, DemonstrationError, imitate, lesson, read_demonstrations
from verifier.engines.scripted import ByteTokenizer
from verifier.prompt import load_prompt, prompt_ids


def demonstration() -> Demonstration:
    world = small_world()
    trace = next(iter(traces(world, next(iter(questions(world))))))
    row = demonstration_row(trace, demonstrate(trace, own_evidence(world, trace)))
    return Demonstration.model_validate_json(json.dumps(row))


def test_a_lesson_is_the_prompt_and_the_episode_with_the_evidence_masked() -> None:
    one, prompt, tokenizer = demonstration(), load_prompt("judge"), ByteTokenizer()
    found = lesson(one, prompt, tokenizer, verdict_weight=8.0)
    start_ids = prompt_ids(prompt, one.case, tokenizer)
    assert list(found.written.ids[: found.written.prompt]) == start_ids
    rest = found.written.ids[found.written.prompt :]
    assert tokenizer.decode(rest) == "".join(piece.text for piece in one.pieces)
    learned = bytes(token for token, policy in zip(rest, found.written.policy, strict=True) if policy).decode()
    assert learned == one.pieces[0].text + one.pieces[2].text
    assert len(found.weights) == sum(found.written.policy)
    heavy = [learned[at] for at, weight in enumerate(found.weights) if weight != 1]
    assert heavy == [str(one.label)]
    assert {weight for weight in found.weights if weight != 1} == {8.0}
    assert learned.endswith(f"<answer>{one.label}</answer>")


async def test_the_judge_runs_through_the_same_tokens() -> None:
    """A policy that writes the demonstration's pieces gives the transcript that the lesson holds."""
    one, prompt = demonstration(), load_prompt("judge")
    engine = scripted(Turns(one.pieces[0].text, one.pieces[2].text))

    class Shown:
        digest = "0" * 64

        async def search(self, query: str, k: int) -> list[object]:
            from retrieval.passage import Hit, Passage

            world = small_world()
            trace = next(iter(traces(world, next(iter(questions(world))))))
            return [
                Hit(passage=Passage.model_validate(passage.model_dump(include=set(Passage.model_fields))), score=passage.score,
                    rank=passage.rank)
                for passage in own_evidence(world, trace)
            ]  # fmt: skip

        async def aclose(self) -> None: ...

    ran = judge(engine, Shown(), prompt=prompt, information_tokens=4000)  # type: ignore[arg-type]
    async with engine.open() as (sequence,):
        outcome = await ran.run(one.case, sequence)
    assert outcome.read.label == one.label
    found = lesson(one, prompt, engine.tokenizer, 1.0)
    assert tuple(outcome.transcript.ids) == found.written.ids
    assert outcome.transcript.policy_mask()[found.written.prompt :] == list(found.written.policy)


def test_imitating_lowers_the_loss_that_it_tells(tmp_path: Path) -> None:
    model = tiny_model(tmp_path / "tiny")
    policy = Policy(model, PolicySettings(lora=Lora(rank=0), device="cpu", precision="float32", row_tokens=600))
    engine = start(model)
    tokenizer = engine.tokenizer
    short = demonstration().model_copy(update={"pieces": demonstration().pieces[2:]})
    lessons = [lesson(short, load_prompt("brief"), tokenizer, 4.0)] * 2
    row = Row([lessons[0].written], policy.device)
    logprobs = policy.score(row).logprobs_P.detach()
    weights = torch.tensor(lessons[0].weights)
    optimiser = torch.optim.AdamW(policy.trained, lr=1e-3)
    done = imitate(policy, optimiser, lessons)
    assert done.loss == pytest.approx(float(-(weights * logprobs).sum() / weights.sum()), rel=1e-4)
    assert done.verdict_loss == pytest.approx(float(-logprobs[weights > 1].mean()), rel=1e-4)
    assert done.tokens == 2 * len(lessons[0].weights)
    assert imitate(policy, optimiser, lessons).loss < done.loss


def test_a_bad_line_is_named(tmp_path: Path) -> None:
    file = tmp_path / "d.jsonl"
    good = demonstration().model_dump_json()
    file.write_text(f"{good}\n")
    assert len(read_demonstrations([file, file])) == 2
    file.write_text(f'{good}\n{{"id": "x"}}\n')
    with pytest.raises(DemonstrationError, match=r"d\.jsonl, line 2: question: Field required"):
        read_demonstrations([file])
    with pytest.raises(DemonstrationError, match="No such file"):
        read_demonstrations([tmp_path / "none.jsonl"])
