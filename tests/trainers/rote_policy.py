"""A tiny judge that learned its episodes by rote, and a server of it that speaks as verl's servers do. Runs where verl runs.

What it writes is well-formed: it looks something up or does not, and gives either verdict, by chance. Everything around it is
real: its tokens, their probabilities, and what training makes of them.
"""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from verl.workers.rollout.replica import TokenOutput

from verifier.engines.sampling import sample
from verifier.engines.tokenizer import HFTokenizer
from verifier.prompt import Prompt, prompt_ids
from verifier.types import Case

QUERY = "warfarin"
LOOK = f"<think>look</think><search>{QUERY}</search>"
VERDICTS = tuple(f"<think>so</think><answer>{label}</answer>" for label in (0, 1))
#: What vLLM's `SamplingParams` knows of what verl and we ask for; anything else would be a TypeError there.
KNOWN = frozenset({
    "temperature", "top_p", "top_k", "repetition_penalty", "logprobs", "max_tokens", "stop", "include_stop_str_in_output",
    "stop_token_ids", "min_p", "seed",
})  # fmt: skip
TEMPLATE = "{% for message in messages %}<|start|>{{ message.content }}{% endfor %}\n"
_IGNORED = -100


def cases(count: int) -> list[Case]:
    return [
        Case(id=f"c{number}", question=f"Which drug is number {number}?", trace=f"It is drug {number % 7}.")
        for number in range(count)
    ]


def save_tokenizer(folder: Path, prompt: Prompt, evidence: str) -> HFTokenizer:
    """Byte-level BPE that has seen the texts."""
    plain = Tokenizer(models.BPE())
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=["<|pad|>", "<|start|>", "<|end|>"],
        show_progress=False,
    )
    plain.train_from_iterator([prompt.head, *prompt.between, evidence, LOOK, *VERDICTS], trainer)
    whole = PreTrainedTokenizerFast(
        tokenizer_object=plain, pad_token="<|pad|>", bos_token="<|start|>", eos_token="<|end|>", chat_template=TEMPLATE
    )
    whole.save_pretrained(folder)
    return HFTokenizer(folder)


def save_policy(folder: Path, prompt: Prompt, evidence: str, steps: int = 120) -> Path:
    """Teach it its episodes: half of them look something up first; each verdict comes as often as the other."""
    tokenizer = save_tokenizer(folder, prompt, evidence)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=400,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        tie_word_embeddings=False,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    model = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    chance = random.Random(0)
    for _ in range(steps):
        ids, labels = _lesson(prompt, evidence, tokenizer, chance)
        loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert loss.item() < 0.3, f"the policy did not learn its episodes: loss {loss.item():.2f}"
    model.save_pretrained(folder)
    return folder


def _lesson(prompt: Prompt, evidence: str, tokenizer: HFTokenizer, chance: random.Random) -> tuple[Any, Any]:
    rows = []
    for case in chance.sample(cases(40), 8):
        spoken = [(prompt_ids(prompt, case, tokenizer), False)]
        if chance.random() < 0.5:
            spoken += [(tokenizer.encode(LOOK), True), (tokenizer.encode(evidence), False)]
        spoken += [(tokenizer.encode(chance.choice(VERDICTS)), True)]
        ids = [token for part, _ in spoken for token in part]
        rows.append((ids, [token if own else _IGNORED for part, own in spoken for token in part]))
    length = max(len(ids) for ids, _ in rows)
    padded = [(ids + [0] * (length - len(ids)), labels + [_IGNORED] * (length - len(labels))) for ids, labels in rows]
    return torch.tensor([ids for ids, _ in padded]), torch.tensor([labels for _, labels in padded])


class RoteServer:
    """Generates as verl's vLLM server does: token ids in; ids, processed log-probabilities and hardly a reason out."""

    def __init__(self, folder: str) -> None:
        self.model = LlamaForCausalLM.from_pretrained(folder).eval()
        self.tokenizer = HFTokenizer(Path(folder))
        self.global_steps = 0
        self.generator = torch.Generator().manual_seed(0)

    async def generate(
        self, prompt_ids: Sequence[int], sampling_params: dict[str, Any], request_id: str, **_: Any
    ) -> TokenOutput:
        if unknown := sampling_params.keys() - KNOWN:
            raise TypeError(f"Unexpected keyword argument {sorted(unknown)}")
        if not sampling_params.get("include_stop_str_in_output"):
            raise ValueError("the stop string would be cut off")
        ids, logprobs = [], []
        for token, logprob in self._tokens(prompt_ids, sampling_params):
            ids.append(token)
            logprobs.append(logprob)
        return TokenOutput(
            token_ids=ids, log_probs=logprobs, stop_reason="completed", extra_fields={"global_steps": self.global_steps}
        )

    @torch.inference_mode()
    def _tokens(self, prompt: Sequence[int], how: dict[str, Any]) -> Iterator[tuple[int, float]]:
        past, ids, written = None, torch.tensor([list(prompt)]), list[int]()
        for _ in range(how["max_tokens"]):
            out = self.model(input_ids=ids, past_key_values=past, use_cache=True)
            past, logits = out.past_key_values, out.logits[0, -1].float()
            if how["temperature"] == 0:
                token = int(logits.argmax())
                logprob = float(logits.log_softmax(-1)[token])
            else:
                token, logprob = sample(logits, how["temperature"], how["top_p"], self.generator)
            written.append(token)
            yield token, logprob
            text = self.tokenizer.decode(written)
            if token in how["stop_token_ids"] or any(stop in text for stop in how["stop"]):
                return
            ids = torch.tensor([[token]])


class RoteClient:
    """verl's client of one such server in this process."""

    def __init__(self, folder: Path) -> None:
        self._server = RoteServer(str(folder))

    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]) -> TokenOutput:
        return await self._server.generate(
            prompt_ids=prompt_ids, sampling_params=dict(sampling_params), request_id=request_id
        )
