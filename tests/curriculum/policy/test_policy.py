"""What a policy says, what it gives to an engine, and what it keeps."""

from pathlib import Path

import pytest
import torch
from tiny_model import Reference, config, generate, save_model, start
from transformers import LlamaForCausalLM

from configs.adapter import read_adapter
from curriculum.policy.policy import Policy, PolicyError, load_weights, save_weights
from curriculum.policy.rows import Row, Written
from curriculum.settings import Lora, PolicySettings
from verifier.engines.sampling import nucleus

CPU = torch.device("cpu")
WRITTEN = Written((5, 6, 7, 8, 9, 10), 2, (True, True, False, True))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("policies") / "tiny")


def policy(folder: Path, rank: int = 0, **settings: object) -> Policy:
    return Policy(folder, PolicySettings(lora=Lora(rank=rank), device="cpu", precision="float32", **settings))


def nudge(policy: Policy) -> None:
    """Change everything that is trained."""
    torch.manual_seed(1)
    with torch.no_grad():
        for weight in policy.trained:
            weight.add_(0.05 * torch.randn_like(weight))


@pytest.mark.parametrize("temperature", [1.0, 0.5])
@pytest.mark.parametrize("recompute", [False, True])
def test_log_probabilities_are_those_of_a_plain_forward_pass(folder: Path, temperature: float, recompute: bool) -> None:
    scored = policy(folder, recompute=recompute).score(Row([WRITTEN], CPU), temperature)
    logs = Reference(folder).logprobs(WRITTEN.ids, temperature)
    places = [(1, 7), (2, 8), (4, 10)]
    assert scored.logprobs_P.tolist() == pytest.approx([float(logs[place]) for place in places], abs=1e-4)
    entropies = [-float((logs[at].exp() * logs[at]).sum()) for at, _ in places]
    assert scored.entropy == pytest.approx(sum(entropies), abs=1e-3)


def test_below_top_p_1_they_are_those_of_a_draw_from_the_nucleus(folder: Path) -> None:
    logs = Reference(folder).logprobs(WRITTEN.ids)
    best = int(logs[1].argmax())  # surely in the nucleus
    written = Written((5, 6, best, 8), 2, (True, False))
    scored = policy(folder).score(Row([written], CPU), top_p=0.5)
    kept = nucleus(logs[1].exp(), 0.5)
    assert scored.logprobs_P.tolist() == pytest.approx([float(logs[1, best] - logs[1][kept].logsumexp(0))], abs=1e-4)


@pytest.mark.parametrize("rank", [0, 4])
async def test_an_engine_with_its_weights_says_what_it_says(folder: Path, rank: int) -> None:
    trained = policy(folder, rank)
    engine = start(folder)
    try:
        before = await generate(engine, WRITTEN.ids[:2], 6)
        nudge(trained)
        engine.load_weights(trained.weights(), "nudged")
        written = await generate(engine, WRITTEN.ids[:2], 6)
        row = Row([Written((*WRITTEN.ids[:2], *written.ids), 2, (True,) * len(written.ids))], CPU)
        assert trained.score(row).logprobs_P.tolist() == pytest.approx(written.logprobs, abs=1e-4)
        assert written.logprobs != pytest.approx(before.logprobs, abs=1e-2)
    finally:
        await engine.aclose()


@pytest.mark.parametrize("rank", [0, 4])
async def test_what_is_saved_is_a_judge_that_says_the_same(folder: Path, tmp_path: Path, rank: int) -> None:
    from configs.settings import TransformersEngine as EngineSettings
    from verifier.engines.transformers import TransformersEngine

    trained = policy(folder, rank)
    nudge(trained)
    trained.save(tmp_path / "judge")
    settings = EngineSettings(dtype="float32", device="cpu", max_sequences=1, max_context=512)
    if rank:
        engine = TransformersEngine(folder, "d", settings, read_adapter(tmp_path / "judge"))
    else:
        engine = TransformersEngine(tmp_path / "judge", "d", settings)
    try:
        written = await generate(engine, WRITTEN.ids[:2], 6)
        row = Row([Written((*WRITTEN.ids[:2], *written.ids), 2, (True,) * len(written.ids))], CPU)
        assert trained.score(row).logprobs_P.tolist() == pytest.approx(written.logprobs, abs=1e-4)
    finally:
        await engine.aclose()


@pytest.mark.parametrize("rank", [0, 4])
def test_a_checkpoint_gives_the_weights_back_bit_by_bit(folder: Path, tmp_path: Path, rank: int) -> None:
    first, second = policy(folder, rank), policy(folder, rank)
    nudge(first)
    save_weights(tmp_path / "weights.safetensors", first.state())
    second.load_state(load_weights(tmp_path / "weights.safetensors"))
    row = Row([WRITTEN], CPU)
    assert first.score(row).logprobs_P.tolist() == second.score(row).logprobs_P.tolist()
    with pytest.raises(PolicyError, match="its settings were others"):
        policy(folder, 4 - rank).load_state(first.state())


def test_inside_other_weights_and_afterwards_its_own(folder: Path) -> None:
    trained, row = policy(folder, 4), Row([WRITTEN], CPU)
    start_state = {name: weight.clone() for name, weight in trained.state().items()}
    at_first = trained.score(row).logprobs_P.tolist()
    nudge(trained)
    now = trained.score(row).logprobs_P.tolist()
    with trained.holding(start_state):
        assert trained.score(row).logprobs_P.tolist() == at_first
    assert trained.score(row).logprobs_P.tolist() == now != at_first


def test_an_adapter_starts_without_effect_and_trains_little(folder: Path) -> None:
    whole, adapted, row = policy(folder), policy(folder, 2), Row([WRITTEN], CPU)
    assert adapted.score(row).logprobs_P.tolist() == pytest.approx(whole.score(row).logprobs_P.tolist(), abs=1e-6)
    assert sum(weight.numel() for weight in adapted.trained) < 0.2 * sum(weight.numel() for weight in whole.trained)


@pytest.mark.parametrize("rank", [0, 4])
def test_it_goes_on_with_an_adapter(folder: Path, tmp_path: Path, rank: int) -> None:
    first, row = policy(folder, 4), Row([WRITTEN], CPU)
    nudge(first)
    first.save(tmp_path / "begun")
    settings = PolicySettings(lora=Lora(rank=rank), device="cpu", precision="float32")
    second = Policy(folder, settings, adapter=read_adapter(tmp_path / "begun"))
    scored = second.score(row)
    assert scored.logprobs_P.tolist() == pytest.approx(first.score(row).logprobs_P.tolist(), abs=1e-4)
    assert len(second.trained) == len(policy(folder, rank).trained)
    scored.logprobs_P.sum().backward()
    assert all(weight.grad is not None for weight in second.trained)
    second.save(tmp_path / "judge")
    assert (tmp_path / "judge" / "adapter_config.json").exists() == bool(rank)


def test_an_adapter_of_another_kind_is_not_gone_on_with(folder: Path, tmp_path: Path) -> None:
    policy(folder, 4).save(tmp_path / "begun")
    for lora in (Lora(rank=8), Lora(rank=4, alpha=8)):
        with pytest.raises(PolicyError, match=r"policy.lora.rank=4 and policy.lora.alpha=32"):
            Policy(folder, PolicySettings(lora=lora, device="cpu"), adapter=read_adapter(tmp_path / "begun"))


def test_what_cannot_be_computed_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="fits no layer"):
        Policy(folder, PolicySettings(lora=Lora(targets="elsewhere"), device="cpu"))
    windowed = LlamaForCausalLM(config())
    windowed.config.layer_types = ["sliding_attention", "full_attention"]
    save_model(tmp_path / "windowed", windowed)
    with pytest.raises(PolicyError, match="full attention only"):
        policy(tmp_path / "windowed")
