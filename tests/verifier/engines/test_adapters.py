"""LoRA adapters in the embedded engine: the numbers of the model that the definition gives, or an error."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_adapter import save_adapter, save_merged
from tiny_model import MODEL_CONTEXT, generate, start
from verifier_fakes import CASE, judge

from configs.adapter import read_adapter
from configs.settings import TransformersEngine as EngineSettings
from verifier.engines.base import EngineError
from verifier.engines.transformers import TransformersEngine

pytest.importorskip("peft")
# peft asks transformers by a name that a later release will drop.
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")

SETTINGS = EngineSettings(dtype="float32", device="cpu", max_sequences=4, max_context=MODEL_CONTEXT, step_tokens=512)
IDS = list(range(30, 70))


@pytest.fixture(scope="module")
def adapter(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_adapter(tiny, tmp_path_factory.mktemp("adapters") / "mine")


def adapted(model: Path, adapter: Path) -> TransformersEngine:
    return TransformersEngine(model, "d" * 64, SETTINGS, read_adapter(adapter))


async def test_the_numbers_are_those_of_the_definition(
    tiny: Path, adapter: Path, engine: TransformersEngine, tmp_path: Path
) -> None:
    merged, mine = start(save_merged(tiny, tmp_path / "merged")), adapted(tiny, adapter)
    expected, found = [await generate(one, IDS, 12, watch=(3, 17)) for one in (merged, mine)]
    assert found.ids == expected.ids
    assert found.logprobs == pytest.approx(expected.logprobs, abs=1e-4)
    for ours, theirs in zip(found.watched, expected.watched, strict=True):
        assert ours == pytest.approx(theirs, abs=1e-4)
    assert (await generate(engine, IDS, 12)).ids != found.ids  # without it, the model says something else
    await merged.aclose()
    await mine.aclose()


async def test_another_adapter_is_another_judge(tiny: Path, adapter: Path, tmp_path: Path) -> None:
    plain = start(tiny, max_context=MODEL_CONTEXT)
    mine, other = adapted(tiny, adapter), adapted(tiny, save_adapter(tiny, tmp_path / "other", size=0.5))
    assert mine.describe() == {**plain.describe(), "adapter": read_adapter(adapter).digest}
    assert len({judge(engine).judge_id for engine in (plain, mine, other)}) == 3
    judgment = await judge(mine, mode="guided", guided={"think_tokens": 8, "query_tokens": 4}).verify(CASE)
    assert judgment.p_correct is not None
    for engine in (plain, mine, other):
        await engine.aclose()


def without_one(tensors: dict[str, torch.Tensor]) -> None:
    tensors.pop(sorted(tensors)[0])


def with_a_stranger(tensors: dict[str, torch.Tensor]) -> None:
    tensors["base_model.model.model.layers.9.mlp.down_proj.lora_A.weight"] = torch.zeros(4, 96)


def of_another_shape(tensors: dict[str, torch.Tensor]) -> None:
    tensors[sorted(tensors)[0]] = torch.zeros(4, 5)


def broken(tensors: dict[str, torch.Tensor]) -> None:
    tensors[sorted(tensors)[0]].fill_(torch.nan)


@pytest.mark.parametrize("change", [without_one, with_a_stranger, of_another_shape, broken])
def test_half_an_adapter_is_refused(
    tiny: Path, adapter: Path, tmp_path: Path, change: Callable[[dict[str, torch.Tensor]], None]
) -> None:
    folder = shutil.copytree(adapter, tmp_path / "changed")
    tensors = load_file(folder / "adapter_model.safetensors")
    change(tensors)
    save_file(tensors, folder / "adapter_model.safetensors")
    with pytest.raises(EngineError, match="adapter"):
        adapted(tiny, folder)


def test_an_adapter_to_other_layers_is_refused(tiny: Path, adapter: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(adapter, tmp_path / "changed")
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps({**config, "target_modules": ["no_such_layer"]}))
    with pytest.raises(EngineError, match="adapter"):
        adapted(tiny, folder)
