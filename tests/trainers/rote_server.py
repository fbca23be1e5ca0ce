"""A server of the policy that learned by rote, which speaks as verl's servers do. Runs where verl runs."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaForCausalLM
from verl.workers.rollout.replica import TokenOutput

from verifier.engines.sampling import sample
from verifier.engines.tokenizer import HFTokenizer

#: What vLLM's `SamplingParams` knows of what verl and we ask for; anything else would be a TypeError there.
KNOWN = frozenset({
    "temperature", "top_p", "top_k", "repetition_penalty", "logprobs", "max_tokens", "stop", "include_stop_str_in_output",
    "stop_token_ids", "min_p", "seed",
})  # fmt: skip


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
