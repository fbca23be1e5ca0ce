"""A tiny judge that learned its episodes by rote.

What it writes is well-formed: it looks something up or does not, and gives either verdict, by chance. Everything around it is
real: its tokens, their probabilities, and what training makes of them.
"""

import random
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from verifier.engines.tokenizer import HFTokenizer
from verifier.prompt import Prompt, prompt_ids
from verifier.types import Case

QUERY = "warfarin"
LOOK = f"<think>look</think><search>{QUERY}</search>"
VERDICTS = tuple(f"<think>so</think><answer>{label}</answer>" for label in (0, 1))
TEMPLATE = "{% for message in messages %}<|start|>{{ message.content }}{% endfor %}\n"
KNOWN_BY_ROTE = 0.08  # nats a token; what is left to chance, two choices among some thirty tokens, is about 0.05
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


def save_policy(folder: Path, prompt: Prompt, evidence: str, most_steps: int = 200) -> Path:
    """Teach it its episodes: half of them look something up first; each verdict comes as often as the other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # so small a model is only held up by a second one
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
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    chance = random.Random(0)
    losses = [9.0]
    while max(losses[-3:]) > KNOWN_BY_ROTE:
        assert len(losses) <= most_steps, f"the policy did not learn its episodes: loss {losses[-1]:.2f}"
        ids, labels = _lesson(prompt, evidence, tokenizer, chance)
        loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    torch.set_num_threads(threads)
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
