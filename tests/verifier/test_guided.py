"""Guided mode: we write the tags, the policy finishes our sentences."""

from typing import Any

import pytest
from verifier_fakes import CASE, SURE, FakeRetriever, believe, engine, judge, run, whole_text, written_by

from retrieval.passage import RetrievalError
from verifier.engines.base import EngineError
from verifier.engines.scripted import Beliefs, Script, ScriptedEngine
from verifier.episode import RESERVE
from verifier.prompt import load_prompt, prompt_ids
from verifier.transcript import Author
from verifier.types import Status, StopReason


def script(
    thought: str = " it helps.</think>",
    review: str = " it does.</think>",
    queries: tuple[str, ...] = ("q1\n", "q2\n", "q3\n"),
) -> Script:
    """What the policy writes behind each of our leads."""
    asked = iter(queries)

    def says(text: str) -> str:
        if text.endswith("claims that"):
            return thought
        if text.endswith("passages say that"):
            return review
        return next(asked) if text.endswith("facts about") else "?"

    return says


def choose(search: float, answer: float, labels: Beliefs = SURE) -> Beliefs:
    """How likely the policy is to begin a search or an answer."""

    def beliefs(text: str) -> dict[str, float]:
        tail = text[text.rfind("<") :]
        if tail == "<":
            return {"s": search, "a": answer}
        completing = [tag for tag in ("<search>", "<answer>") if tag.startswith(tail) and tag != tail]
        return {completing[0][len(tail)]: 1.0} if completing else labels(text)

    return beliefs


EAGER = choose(0.9, 0.1)  # would rather search


def guided(script: Script, beliefs: Beliefs = EAGER, **fields: Any) -> ScriptedEngine:
    return engine(script, beliefs=beliefs, **fields)


async def test_think_search_think_answer() -> None:
    retriever, scripted = FakeRetriever(), guided(script(), choose(0.1, 0.9))
    outcome = await run(judge(scripted, retriever, "guided"))
    judgment = outcome.judgment
    assert (judgment.status, judgment.stop_reason, judgment.verdict) == (Status.SCORED, StopReason.ANSWERED, 1)
    assert judgment.p_correct == pytest.approx(0.9)
    assert judgment.label_mass == pytest.approx(0.8)
    assert judgment.forced is True
    assert judgment.format_score is None  # the tags are ours
    assert judgment.turns == 3
    assert retriever.queries == ["q1"]
    assert judgment.reasoning == "The reasoning claims that it helps.\n\nThe passages say that it does."
    assert written_by(outcome, Author.POLICY, scripted) == [" it helps.", "q1", " it does."]
    prompt, evidence = written_by(outcome, Author.PROMPT, scripted) + written_by(outcome, Author.EVIDENCE, scripted)
    assert whole_text(outcome, scripted) == (
        f"{prompt}<think>\nThe reasoning claims that it helps.\n</think>\n<search>medical facts aboutq1</search>{evidence}"
        "<think>\nThe passages say that it does.\n</think>\n<answer>1</answer>"
    )
    assert outcome.read.blocks == ()


@pytest.mark.parametrize(
    ("wants", "settings", "searches"),
    [
        (0.9, {}, 2),
        (0.1, {}, 1),
        (0.9, {"guided": {"min_searches": 0}}, 2),
        (0.1, {"guided": {"min_searches": 0}}, 0),
        (0.5, {"guided": {"min_searches": 0}}, 0),
        (0.1, {"guided": {"min_searches": 2}}, 2),
        (0.9, {"guided": {"max_searches": 3}}, 3),
        (0.9, {"guided": {"max_searches": 0}}, 0),
        (0.9, {"limits": {"max_searches": 1}}, 1),
        (0.1, {"guided": {"min_searches": 3}, "limits": {"max_searches": 0}}, 0),
    ],
)
async def test_searches_are_bounded_and_in_between_chosen_by_likelihood(
    wants: float, settings: dict[str, Any], searches: int
) -> None:
    retriever = FakeRetriever()
    judgment = await judge(guided(script(), choose(wants, 1 - wants)), retriever, "guided", **settings).verify(CASE)
    assert retriever.queries == ["q1", "q2", "q3"][:searches]
    assert len(judgment.searches) == searches
    assert judgment.turns == 1 + 2 * searches
    assert (judgment.status, judgment.verdict) == (Status.SCORED, 1)


async def test_the_whole_tag_counts_not_only_its_first_token() -> None:
    """`<s` is the likelier beginning, but the policy would hardly go on with `earch>`."""

    def beliefs(text: str) -> dict[str, float]:
        return {"e": 0.001} if text.endswith("<s") else choose(0.6, 0.4)(text)

    judgment = await judge(guided(script(), beliefs), mode="guided", guided={"min_searches": 0}).verify(CASE)
    assert judgment.searches == []


async def test_a_query_asked_before_ends_the_searching() -> None:
    retriever, scripted = FakeRetriever(), guided(script(queries=("q1\n", ' "q1." \n', "q2\n")))
    outcome = await run(judge(scripted, retriever, "guided", guided={"max_searches": 4}))
    assert retriever.queries == ["q1"]
    assert outcome.judgment.verdict == 1
    assert (
        whole_text(outcome, scripted).removeprefix(load_prompt("guided").head).count("<search>") == 1
    )  # the draft is not kept


@pytest.mark.parametrize(
    ("written", "query"),
    [(" metformin  dose\nmore", "metformin dose"), (" 'a b'.</search>x", "a b"), (' "K+ ', "K+"), (" <5%", None)],
)
async def test_queries_are_trimmed(written: str, query: str | None) -> None:
    retriever = FakeRetriever()
    judgment = await judge(guided(script(queries=(written,))), retriever, "guided", guided={"max_searches": 1}).verify(
        CASE
    )
    assert retriever.queries == [query or ""]
    assert [search.query for search in judgment.searches] == ([query] if query else [])


@pytest.mark.parametrize("forcing", [False, True])
@pytest.mark.parametrize("written", ["", " \n", "\n", "<", ' "". '])
async def test_an_empty_query_ends_the_episode(written: str, forcing: bool) -> None:
    scripted = guided(script(queries=(written,)))
    outcome = await run(judge(scripted, mode="guided", force_verdict=forcing))
    judgment = outcome.judgment
    assert judgment.stop_reason is StopReason.BAD_QUERY
    assert judgment.searches == []
    assert (judgment.status, judgment.verdict) == ((Status.SCORED, 1) if forcing else (Status.UNPARSEABLE, None))
    assert judgment.forced is forcing
    assert outcome.transcript.count(Author.EVIDENCE) == 0


@pytest.mark.parametrize(
    "forged",
    [
        "</think><answer>1</answer>",
        "<answer>1</answer>",
        "<think>again",
        "</answer>",
        "<information>I know",
        "<search>x</search>",
    ],
)
async def test_a_thought_ends_where_the_policy_reaches_for_a_tag(forged: str) -> None:
    scripted = guided(script(thought=f" K+ <3.5 is low{forged}"), choose(0.1, 0.9, believe(0.1, 0.7)))
    outcome = await run(judge(scripted, mode="guided"))
    assert written_by(outcome, Author.POLICY, scripted)[0] == " K+ <3.5 is low"
    assert outcome.judgment.verdict == 0
    assert outcome.judgment.p_correct == pytest.approx(0.125)
    assert "low\n</think>\n" in whole_text(outcome, scripted)


async def test_a_thought_is_cut_at_its_bound_and_end_of_text_is_not_kept() -> None:
    scripted = guided(script(thought=" so" * 100, review=" yes"))
    outcome = await run(judge(scripted, mode="guided", guided={"think_tokens": 12}))
    thoughts = [text for text in written_by(outcome, Author.POLICY, scripted) if not text.startswith("q")]
    assert thoughts == [" so" * 4, " yes", " yes"]
    assert 256 not in outcome.transcript.ids
    assert outcome.judgment.verdict == 1


def prompt_length() -> int:
    return len(prompt_ids(load_prompt("guided"), CASE, engine(script()).tokenizer))


@pytest.mark.parametrize("forcing", [False, True], ids=["", "forcing"])
@pytest.mark.parametrize(
    ("reason", "status", "settings", "fields"),
    [
        (StopReason.MAX_TURNS, Status.TRUNCATED, {"limits": {"max_turns": 2}}, {}),
        (StopReason.MAX_TOKENS, Status.TRUNCATED, {"limits": {"max_new_tokens": 5}}, {}),
        (StopReason.MAX_TOKENS, Status.TRUNCATED, {"limits": {"max_new_tokens": len(" it helps.") + 1}}, {}),
        (StopReason.CONTEXT_FULL, Status.TRUNCATED, {}, {"max_context": prompt_length() + RESERVE + 1}),
        (StopReason.CONTEXT_FULL, Status.TRUNCATED, {}, {"max_context": prompt_length() + RESERVE + 40}),
        (StopReason.CONTEXT_FULL, Status.TRUNCATED, {}, {"max_context": prompt_length() + RESERVE + 150}),
    ],
)
async def test_limits(
    reason: StopReason, status: Status, settings: dict[str, Any], fields: dict[str, Any], forcing: bool
) -> None:
    scripted = guided(script(), **fields)
    outcome = await run(judge(scripted, mode="guided", force_verdict=forcing, **settings))
    assert outcome.judgment.stop_reason is reason
    assert (outcome.judgment.status, outcome.judgment.verdict) == ((Status.SCORED, 1) if forcing else (status, None))
    assert len(outcome.transcript.ids) <= scripted.max_context


@pytest.mark.parametrize("extra", range(0, 400, 3))
async def test_a_verdict_can_be_forced_however_full_the_context_is(extra: int) -> None:
    scripted = guided(script(), max_context=prompt_length() + RESERVE + 1 + extra)
    outcome = await run(judge(scripted, mode="guided", top_k=1))
    assert (outcome.judgment.status, outcome.judgment.verdict) == (Status.SCORED, 1)
    assert len(outcome.transcript.ids) <= scripted.max_context


@pytest.mark.parametrize("forcing", [False, True])
async def test_outages_are_no_verdicts(forcing: bool) -> None:
    down = await judge(
        guided(script()), FakeRetriever(error=RetrievalError("down")), "guided", force_verdict=forcing
    ).verify(CASE)
    assert (down.status, down.stop_reason, down.verdict) == (Status.RETRIEVAL_FAILED, StopReason.RETRIEVAL_ERROR, None)
    lost = await judge(guided(lambda _: EngineError("lost")), mode="guided", force_verdict=forcing).verify(CASE)
    assert (lost.status, lost.stop_reason, lost.verdict, lost.format_score) == (
        Status.ENGINE_FAILED,
        StopReason.ENGINE_ERROR,
        None,
        None,
    )


async def test_labels_that_the_engine_does_not_report_are_no_verdict() -> None:
    judgment = await judge(guided(script(), choose(0.5, 0.5, believe(0, 0))), mode="guided").verify(CASE)
    assert (judgment.status, judgment.verdict, judgment.p_correct) == (Status.UNPARSEABLE, None, None)


async def test_a_choice_that_the_engine_does_not_report_is_a_failure() -> None:
    judgment = await judge(guided(script(), choose(0, 0)), mode="guided").verify(CASE)
    assert (judgment.status, judgment.verdict) == (Status.ENGINE_FAILED, None)
    assert "likelihood of the tags" in judgment.detail
