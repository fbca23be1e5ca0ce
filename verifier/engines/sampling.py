"""From logits to a token and its log-probability: pure functions."""

import torch
from torch import Tensor


def sample(logits_V: Tensor, temperature: float, top_p: float, generator: torch.Generator) -> tuple[int, float]:
    """Draw one token at a temperature above 0. (Greedy decoding is an argmax, taken over a whole batch at once.)

    Args:
        logits_V: float32 [V].
        temperature: above 0.
        top_p: the smallest set of most probable tokens with at least this mass is sampled from.
        generator: the request's own source of randomness, on the logits' device.

    Returns:
        The token, and the log-probability with which it was drawn: among those of the nucleus alone.
    """
    logprobs_V = torch.log_softmax(logits_V / temperature, dim=-1)
    if top_p < 1:
        kept_V = nucleus(logprobs_V.exp(), top_p)
        logprobs_V = torch.log_softmax(logprobs_V.masked_fill(~kept_V, -torch.inf), dim=-1)
    token = int(torch.multinomial(logprobs_V.exp(), 1, generator=generator))
    return token, float(logprobs_V[token])


def nucleus(probs_V: Tensor, top_p: float) -> Tensor:
    """Which tokens nucleus sampling can draw: the most probable ones, up to that with which they reach `top_p`.

    Args:
        probs_V: [..., V], each row sums to 1.
        top_p: in (0, 1].

    Returns:
        bool [..., V]; at least one token a row. Equal probabilities are taken by the lower id first.
    """
    sorted_V, order_V = probs_V.sort(dim=-1, descending=True, stable=True)
    kept_V = sorted_V.cumsum(-1) - sorted_V < top_p  # mass before the token is still short of top_p
    return torch.zeros_like(kept_V).scatter(-1, order_V, kept_V)
