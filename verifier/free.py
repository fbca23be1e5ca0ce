"""Free mode: the policy writes its own tags. For judges that were trained on the format."""

import re

from verifier.confidence import Confidence, read_confidence
from verifier.engines.base import Completion, Finish
from verifier.episode import Episode, Stop, Verdict, leading_ids
from verifier.parse import Block, Tag
from verifier.transcript import Author
from verifier.types import StopReason

_ACTIONS = (Tag.SEARCH, Tag.ANSWER)
_DIGIT = re.compile("[01]")
_STOPS = tuple(tag.closing for tag in _ACTIONS)


async def run_free(episode: Episode) -> Verdict:
    """think → search → information → … → answer, every tag by the policy.

    Raises:
        Stop: the episode ended without a readable answer.
    """
    while True:
        completion, limit = await episode.turn(stop=_STOPS)
        # The end-of-text token closes the judge's turn: behind it no verdict could be read.
        kept = len(completion.ids) - (completion.finish is Finish.END)
        episode.transcript.add(Author.POLICY, completion.ids[:kept], completion.logprobs[:kept])
        blocks = episode.parser.feed(episode.decode(completion.ids))
        for block in blocks:
            if block.tag is Tag.THINK:
                episode.keep_thought(block.content.strip())
        action = next((block for block in blocks if block.tag in _ACTIONS), None)
        if action is not None and action.tag is Tag.ANSWER:
            return await _answer(episode, completion, action)
        if action is not None:
            await episode.search(action.content.strip())
        elif limit is not None:
            raise Stop(limit)
        elif completion.finish is Finish.END:
            raise Stop(StopReason.END_OF_TEXT)
        # Otherwise a closing tag was mentioned inside another block: talk, not an action. The policy goes on.


async def _answer(episode: Episode, completion: Completion, block: Block) -> Verdict:
    if block.label is None:
        raise Stop(StopReason.ANSWERED, f"the answer is neither 0 nor 1: {block.content.strip()[:40]!r}")
    confidence = await _confidence(episode, completion)
    if confidence is None:
        raise Stop(StopReason.ANSWERED, "the engine reported neither label at the verdict position")
    return Verdict(block.label, confidence, forced=False)


async def _confidence(episode: Episode, completion: Completion) -> Confidence | None:
    """p(1) where the label stands: the last token with a digit in it, for the closing tag has none."""
    ids = completion.ids
    position = next(i for i in reversed(range(len(ids))) if _DIGIT.search(episode.decode(ids[i:])))
    if episode.labels.label(ids[position]) is not None:
        return read_confidence(completion.watched[position], episode.labels)
    # The tokenizer merged the digit with its neighbours: read the position behind the tag spelt by itself.
    text = episode.decode(ids)
    opening = text.rindex(Tag.ANSWER.opening)
    kept = leading_ids(episode.engine.tokenizer, ids, opening)
    before = episode.transcript.ids[: -len(ids)]
    retold = text[len(episode.decode(ids[:kept])) : opening] + Tag.ANSWER.opening
    return await episode.confidence_after([*before, *ids[:kept], *episode.engine.tokenizer.encode(retold)])
