"""A row gives what its sequences give one by one, for fewer tokens."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_model import VOCABULARY, config, save_model
from transformers import AutoModelForCausalLM, LlamaForCausalLM, PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from curriculum.policy.rows import ATTENTION, Row, Written, rows

CPU = torch.device("cpu")
word = st.integers(0, VOCABULARY - 1)


@st.composite
def sequences(draw: st.DrawFn) -> list[Written]:
    """Groups with a prompt in common, in which the policy wrote here and there."""
    found = []
    for _ in range(draw(st.integers(1, 3))):
        prompt = draw(st.lists(word, min_size=1, max_size=6))
        for _ in range(draw(st.integers(1, 3))):
            rest = draw(st.lists(st.tuples(word, st.booleans()), min_size=1, max_size=6))
            ids = (*prompt, *(token for token, _ in rest))
            found.append(Written(ids, len(prompt), tuple(policy for _, policy in rest)))
    return found


@pytest.fixture(scope="module", params=["llama", "qwen2"])
def models(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[PreTrainedModel]:
    """The same weights with transformers' plain attention, and with ours."""
    torch.manual_seed(3)
    model = LlamaForCausalLM(config()) if request.param == "llama" else Qwen2ForCausalLM(
        Qwen2Config(**{**config().to_dict(), "model_type": "qwen2"}))  # fmt: skip
    folder = save_model(tmp_path_factory.mktemp("models") / request.param, model)
    return [AutoModelForCausalLM.from_pretrained(folder, attn_implementation=kind) for kind in ("eager", ATTENTION)]


def logprobs(model: PreTrainedModel, row: Row) -> torch.Tensor:
    logits = model(
        input_ids=row.ids_1T, position_ids=row.positions_1T, use_cache=False, logits_to_keep=row.sources_P, row=row
    ).logits[0]
    return torch.log_softmax(logits, -1).gather(-1, row.targets_P[:, None])[:, 0]


def one_by_one(model: PreTrainedModel, written: list[Written]) -> torch.Tensor:
    found = []
    for one in written:
        logs = torch.log_softmax(model(torch.tensor([one.ids])).logits[0], -1)
        found += [logs[one.prompt + at - 1, one.ids[one.prompt + at]] for at, policy in enumerate(one.policy) if policy]
    return torch.stack(found) if found else torch.empty(0)


@given(sequences(), st.integers(1, 40))
def test_log_probabilities_and_gradients_are_those_of_the_sequences_alone(
    models: list[PreTrainedModel], written: list[Written], most: int
) -> None:
    plain, ours = models
    if not any(any(one.policy) for one in written):
        return
    laid = list(rows(written, most, CPU))
    found = torch.cat([logprobs(ours, row) for _, row in laid if row.targets_P.numel()])
    expected = one_by_one(plain, written)
    assert found.tolist() == pytest.approx(expected.tolist(), abs=1e-4)
    gradients = []
    for model, values in ((plain, expected), (ours, found)):
        model.zero_grad()
        values.square().sum().backward()
        gradients.append(model.model.layers[0].self_attn.k_proj.weight.grad.clone())
    assert torch.allclose(gradients[0], gradients[1], rtol=1e-3, atol=1e-3)


@given(sequences(), st.integers(1, 40))
def test_rows_hold_every_sequence_once_and_no_more_than_they_may(written: list[Written], most: int) -> None:
    laid = list(rows(written, most, CPU))
    assert [index for taken, _ in laid for index in taken] == list(range(len(written)))
    for taken, row in laid:
        assert row.tokens <= most or len(taken) == 1
        prompts = {written[index].ids[: written[index].prompt] for index in taken}
        shared = sum(written[index].rest for index in taken) + sum(map(len, prompts))
        assert row.tokens >= shared  # equal, unless the same prompt comes again after another one


def test_a_prompt_that_many_share_is_computed_once() -> None:
    group = [Written((*range(10), number), 10, (True,)) for number in range(5)]
    [(taken, row)] = rows(group, 100, CPU)
    assert taken == [0, 1, 2, 3, 4]
    assert row.tokens == 10 + 5
    assert row.positions_1T.tolist() == [[*range(10), 10, 10, 10, 10, 10]]
    assert row.targets_P.tolist() == [0, 1, 2, 3, 4]
    assert row.sources_P.tolist() == [9] * 5  # the last token of the prompt predicts the first of each rest
