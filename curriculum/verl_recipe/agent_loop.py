"""The judge's episode as an agent loop of verl, registered by `configs/verl/agent.yaml`.

(Not by verl's decorator as well: it would run when a worker makes its first loop, and replace what the file says.)

One call is one rollout: the same `Judge.run` as in the service, over verl's servers (`engine.py`) and a retrieval server. What
verl is given are the ids as they were sampled and shown, never text to be tokenised again.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput

from configs.settings import JudgeSettings
from curriculum.verl_recipe.engine import ServerEngine
from curriculum.verl_recipe.rewards import OUTCOME
from curriculum.verl_recipe.rows import case_of, label_of
from retrieval.remote import RemoteRetriever
from verifier.engines.tokenizer import HFTokenizer
from verifier.judge import Judge, Outcome
from verifier.prompt import load_prompt, prompt_ids
from verifier.reward import Reward, reward
from verifier.transcript import Author
from verifier.types import StopReason

logger = logging.getLogger(__name__)

#: Episodes of this worker that verl was given no trajectory for, by what ended them.
left_out: Counter[StopReason] = Counter()

_CONNECT_S = 30.0  # for the first question, which is not an episode's

_connecting: dict[str, asyncio.Task[RemoteRetriever]] = {}


class JudgeAgentLoop(AgentLoopBase):  # type: ignore[misc]  # verl has no types
    """Makes one for each rollout, as verl does; what is expensive is shared by all of a worker."""

    def __init__(
        self,
        *args: Any,
        retrieval_url: str,
        prompt: str = "judge",
        judge: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Take verl's own arguments, and ours from the agent loop's configuration.

        Args:
            retrieval_url: of `medverify retrieve serve`.
            prompt: the prompt file: a shipped name, or a path.
            judge: limits, evidence and what else of `judge.*` differs from its default.

        Raises:
            ValueError: verl is set up in a way in which episodes cannot run; the message names the key.
        """
        super().__init__(*args, **kwargs)
        self._retrieval_url = retrieval_url
        self._prompt = load_prompt(prompt)
        self._settings = JudgeSettings.model_validate({**(judge or {}), "force_verdict": False})
        self._backend = self.rollout_config.name
        if self._backend not in ("vllm", "sglang"):
            raise ValueError(f"actor_rollout_ref.rollout.name is {self._backend!r}; stop strings need vllm or sglang")
        if self._backend == "sglang" and self.rollout_config.skip_tokenizer_init:
            raise ValueError("stop strings need actor_rollout_ref.rollout.skip_tokenizer_init=False")

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput | list[AgentLoopOutput]:
        """One episode.

        Args:
            sampling_params: verl's for this rollout, such as temperature and top-p.
            row: a row of the data set, as `rows.row_of` makes it.

        Returns:
            The trajectory, with its outcome in `extra_fields`. An empty list if the episode failed for reasons outside the
            policy: verl's trainer then goes on without this rollout, which neither counts in its group's mean nor is trained on.

        Raises:
            ValueError: the row holds no case or no label.
            RetrievalError: no retrieval server answers.
        """
        case, gold = case_of(row), label_of(row)
        tokenizer = _tokenizer(self.tokenizer)
        ids = prompt_ids(self._prompt, case, tokenizer)
        chosen = dict(sampling_params)
        how = {"temperature": chosen.pop("temperature"), "top_p": chosen.pop("top_p")}
        chosen.pop("logprobs", None)  # always asked for
        engine = ServerEngine(self.server_manager, tokenizer, self._backend, self._context(len(ids)), chosen)
        sampling = self._settings.sampling.model_copy(update=how)
        settings = self._settings.model_copy(update={"sampling": sampling})
        retriever = await _retriever(self._retrieval_url, settings.limits.search_timeout_s)
        judge = Judge(engine, retriever, self._prompt, "free", settings)
        async with engine.open() as (sequence,):
            outcome = await judge.run(case, sequence)
        judgment = outcome.judgment
        given = reward(outcome.read, gold, judgment.stop_reason)
        if given is None:
            left_out[judgment.stop_reason] += 1
            logger.warning(
                "case %s: no trajectory (%s: %s); so far %s",
                case.id,
                judgment.stop_reason,
                judgment.detail,
                {str(reason): count for reason, count in left_out.items()},
            )
            return []
        return _output(outcome, given, engine)

    def _context(self, prompt_tokens: int) -> int:
        """Tokens that this episode may hold: its response must not be longer than verl's, whatever its prompt's length."""
        how = self.rollout_config
        context: int = min(prompt_tokens, how.prompt_length) + how.response_length
        return min(context, int(how.max_model_len) - 1) if how.max_model_len else context  # SGLang keeps one back


def _output(outcome: Outcome, given: Reward, engine: ServerEngine) -> AgentLoopOutput:
    """An episode in verl's words."""
    transcript, judgment, spent = outcome.transcript, outcome.judgment, engine.spent
    prompt = transcript.count(Author.PROMPT)
    ids, mask = transcript.ids[prompt:], list(map(int, transcript.policy_mask()[prompt:]))
    logprobs = [
        value
        for segment in transcript.segments
        if segment.author is not Author.PROMPT
        for value in segment.logprobs or (0.0,) * len(segment.ids)
    ]
    if not ids and engine.end is not None:  # the policy's only act was to end: verl knows no empty response
        token, logprob = engine.end
        ids, mask, logprobs = [token], [1], [logprob]
    told = {
        "score": given.total,
        "acc": given.correctness,
        "format": given.format,
        "answered": float(judgment.stop_reason is StopReason.ANSWERED),
        "searches": len(judgment.searches),
        "turns": judgment.turns,
        "policy_tokens": sum(mask),
        "stop": str(judgment.stop_reason),
    }
    return AgentLoopOutput(
        prompt_ids=transcript.ids[:prompt],
        response_ids=ids,
        response_mask=mask,
        response_logprobs=logprobs,
        num_turns=judgment.turns + len(judgment.searches) + 1,  # verl counts the prompt and what tools say as well
        metrics=AgentLoopMetrics(
            generate_sequences=spent.seconds,
            tool_calls=sum(search.latency_ms or 0.0 for search in judgment.searches) / 1000,
            num_preempted=-1 if spent.preempted is None else spent.preempted,
        ),
        extra_fields={
            OUTCOME: told,
            "min_global_steps": min(spent.versions, default=None),
            "max_global_steps": max(spent.versions, default=None),
            "turn_scores": [],
            "tool_rewards": [],
        },
    )


@cache
def _tokenizer(tokenizer: Any) -> HFTokenizer:
    return HFTokenizer(tokenizer)


async def _retriever(url: str, timeout_s: float) -> RemoteRetriever:
    """The worker's connection to the index: asked for once, by all who wait for it; again after a failure."""
    task = _connecting.get(url)
    if task is None or (task.done() and (task.cancelled() or task.exception())):
        connecting = asyncio.to_thread(RemoteRetriever.connect, url, timeout_s=max(timeout_s, _CONNECT_S))
        task = _connecting[url] = asyncio.create_task(connecting)
    return await asyncio.shield(task)
