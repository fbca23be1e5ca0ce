"""A language model with random weights that is small enough for every test, and a byte-level tokenizer to go with it."""

import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from configs.settings import TransformersEngine as EngineSettings
from verifier.engines.base import Completion, Generate
from verifier.engines.transformers import TransformersEngine

MODEL_CONTEXT = 2048
CONTEXT = 512  # of the engine
VOCABULARY = 290
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# Enough text for a few merges; none of them with a digit.
CORPUS = ["the patient has a fever and the answer is in the thinking <think> </think> <answer> </answer>"] * 3


def save_tokenizer(folder: Path, chat_template: str | None = CHAT_TEMPLATE) -> Path:
    """Byte-level BPE; three of its tokens are special."""
    plain = Tokenizer(models.BPE())
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, initial_alphabet=alphabet, special_tokens=list(SPECIAL), show_progress=False
    )
    plain.train_from_iterator(CORPUS, trainer)
    whole = PreTrainedTokenizerFast(
        tokenizer_object=plain, eos_token="<|im_end|>", pad_token="<|endoftext|>", bos_token="<|im_start|>",
        chat_template=chat_template,
    )  # fmt: skip
    whole.save_pretrained(folder)
    return folder


def config(**fields: Any) -> LlamaConfig:
    """Two query heads to a key head. Weights are drawn wide, so that the likeliest token is likelier by far than rounding."""
    shape = {
        "vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "max_position_embeddings": MODEL_CONTEXT, "initializer_range": 0.2,
        "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
    }  # fmt: skip
    return LlamaConfig(**{**shape, **fields})


def save_model(folder: Path, model: PreTrainedModel | None = None) -> Path:
    """A model folder, complete with tokenizer."""
    if model is None:
        torch.manual_seed(20)
        model = LlamaForCausalLM(config())
    model.save_pretrained(folder)
    return save_tokenizer(folder)


def copy_with(source: Path, folder: Path, name: str, rows: Sequence[int] | slice) -> Path:
    """A copy of the tiny model in which some rows of a weight are NaN."""
    model = LlamaForCausalLM.from_pretrained(source)
    with torch.no_grad():
        model.get_parameter(name)[rows] = torch.nan
    shutil.copytree(source, folder)
    model.save_pretrained(folder)
    return folder


@asynccontextmanager
async def running(path: Path, **settings: Any) -> AsyncIterator[TransformersEngine]:
    """An engine, closed in the end."""
    engine = start(path, **settings)
    try:
        yield engine
    finally:
        await engine.aclose()


def start(path: Path, **settings: Any) -> TransformersEngine:
    defaults = {"dtype": "float32", "device": "cpu", "max_sequences": 4, "max_context": CONTEXT, "step_tokens": 512}
    return TransformersEngine(path, "d" * 64, EngineSettings(**{**defaults, **settings}))


async def generate(engine: TransformersEngine, ids: Sequence[int], max_tokens: int = 20, **how: Any) -> Completion:
    """One generation in a place of its own."""
    async with engine.open() as (sequence,):
        return await sequence.generate(Generate(ids, max_tokens, **how))


class Reference:
    """The same model in transformers' own hands, with its own attention."""

    def __init__(self, path: Path) -> None:
        self.model = LlamaForCausalLM.from_pretrained(path, attn_implementation="eager").eval()
        self.tokenizer = AutoTokenizer.from_pretrained(path)

    @torch.inference_mode()
    def greedy(self, ids: Sequence[int], max_tokens: int) -> list[int]:
        prompt = torch.tensor([ids])
        whole = self.model.generate(
            prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=max_tokens, eos_token_id=[0, 2],
            pad_token_id=0,
        )  # fmt: skip
        tokens: list[int] = whole[0, len(ids) :].tolist()
        return tokens

    @torch.inference_mode()
    def logprobs(self, ids: Sequence[int], temperature: float = 1.0) -> torch.Tensor:
        """[n, V]: of what comes after each of the ids."""
        return torch.log_softmax(self.model(torch.tensor([ids])).logits[0] / temperature, dim=-1)
