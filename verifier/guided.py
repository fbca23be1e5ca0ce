"""Guided mode: we write the tags and bound every step. For judges that were never trained on the format.

The policy finishes sentences that we begin: it thinks for a bounded number of tokens, chooses between searching and answering
by the likelihood of the two tags, writes a bounded query, and gives its verdict at a forced position. Its text is not parsed
for tags: it has none to write.
"""

import math
from dataclasses import dataclass

from verifier.engines.base import EngineError, Finish
from verifier.episode import Episode, Stop, Verdict, leading_ids
from verifier.parse import Tag
from verifier.transcript import Author

_TAG_LIKE = ("</", *(tag.opening for tag in Tag))  # where a thought ends: the policy reaches for a tag


async def run_guided(episode: Episode) -> Verdict:
    """think → (search → information → think)* → answer.

    Raises:
        Stop: a limit or a failure ended the episode.
    """
    guided = episode.settings.guided
    await _think(episode, guided.claim_lead)
    while await _wants_search(episode) and await _search(episode):
        await _think(episode, guided.review_lead)
    return await episode.force_verdict()


@dataclass(frozen=True, slots=True)
class _Draft:
    """What the policy wrote after a lead of ours; it counts once it is kept."""

    lead: str
    text: str
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]

    def keep(self, episode: Episode, closing: str) -> None:
        episode.force(self.lead)
        episode.transcript.add(Author.POLICY, self.ids, self.logprobs)
        episode.force(closing)


async def _think(episode: Episode, lead: str) -> None:
    draft = await _draft(episode, f"{Tag.THINK.opening}\n{lead}", episode.settings.guided.think_tokens, _TAG_LIKE)
    draft.keep(episode, f"\n{Tag.THINK.closing}\n")
    episode.keep_thought(f"{lead}{draft.text}".strip())


async def _search(episode: Episode) -> bool:
    """Search, unless the policy asks what it asked before: then it has no more questions."""
    guided = episode.settings.guided
    draft = await _draft(episode, f"{Tag.SEARCH.opening}{guided.query_lead}", guided.query_tokens, ("\n", "<"))
    query = " ".join(draft.text.split()).strip("\"' .")
    if any(query == search.query for search in episode.searches):
        return False
    draft.keep(episode, Tag.SEARCH.closing)
    await episode.search(query)
    return True


async def _draft(episode: Episode, lead: str, max_tokens: int, stop: tuple[str, ...]) -> _Draft:
    """Let the policy go on from `lead` for up to `max_tokens`; what it wrote before the first stop string is its draft."""
    completion, limit = await episode.turn(max_tokens, stop, episode.engine.tokenizer.encode(lead))
    if limit is not None:
        raise Stop(limit)
    ids = completion.ids[:-1] if completion.finish is Finish.END else completion.ids
    text = episode.decode(ids)
    end = min((at for at in map(text.find, stop) if at >= 0), default=len(text))
    kept = leading_ids(episode.engine.tokenizer, ids, end)
    return _Draft(lead, episode.decode(ids[:kept]), ids[:kept], completion.logprobs[:kept])


async def _wants_search(episode: Episode) -> bool:
    guided, done = episode.settings.guided, len(episode.searches)
    if done >= min(guided.max_searches, episode.settings.limits.max_searches):
        return False
    if done < guided.min_searches:
        return True
    return await log_odds(episode, Tag.SEARCH.opening, Tag.ANSWER.opening) > 0


async def log_odds(episode: Episode, first: str, second: str) -> float:
    """log p(first) - log p(second) of the model continuing with either text.

    Tokens that the two share at their start cancel out; the others are asked for one by one.
    """
    tokenizer = episode.engine.tokenizer
    first_ids, second_ids = tokenizer.encode(first), tokenizer.encode(second)
    shared = 0
    while first_ids[shared] == second_ids[shared]:
        shared += 1
    prefix = [*episode.transcript.ids, *first_ids[:shared]]
    fork = await episode.ask(prefix, watch=(first_ids[shared], second_ids[shared]))
    odds = fork.watched[0][0] - fork.watched[0][1]
    odds += await _logprob(episode, [*prefix, first_ids[shared]], first_ids[shared + 1 :])
    odds -= await _logprob(episode, [*prefix, second_ids[shared]], second_ids[shared + 1 :])
    if math.isnan(odds):
        raise EngineError("the engine gave NaN, or nothing, as the likelihood of the tags")
    return odds


async def _logprob(episode: Episode, prefix: list[int], ids: list[int]) -> float:
    total = 0.0
    for position, token in enumerate(ids):
        completion = await episode.ask([*prefix, *ids[:position]], watch=(token,))
        total += completion.watched[0][0]
    return total
