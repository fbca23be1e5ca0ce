import pytest
from verifier_fakes import CASE, FakeRetriever, Turns, believe, engine, judge

from verifier.coherence import CLAIM_LEAD, coherence_judge
from verifier.engines.scripted import ScriptedEngine
from verifier.judge import Mode
from verifier.types import Status, StopReason


def asked(engine: ScriptedEngine) -> list[str]:
    return [engine.tokenizer.decode(request.ids) for request in engine.requests]


async def test_it_reads_the_trace_and_judges_without_a_search() -> None:
    retriever = FakeRetriever()
    own = engine(Turns("<think>Each step follows.</think><answer>1</answer>"), beliefs=believe(0.6, 0.2))
    judgment = await coherence_judge(judge(own, retriever)).verify(CASE)
    assert judgment.status is Status.SCORED
    assert judgment.p_correct == pytest.approx(0.75)
    assert judgment.searches == retriever.queries == []
    assert "Whether its facts are true is not your question." in asked(own)[0]
    assert CASE.trace.render() in asked(own)[0]


async def test_one_who_wants_to_search_all_the_same_is_made_to_answer() -> None:
    retriever = FakeRetriever()
    own = engine(Turns("<think>I look it up.</think><search>metformin</search>"))
    forced = await coherence_judge(judge(own, retriever)).verify(CASE)
    assert (forced.status, forced.forced, retriever.queries) == (Status.SCORED, True, [])
    own = engine(Turns("<think>I look it up.</think><search>metformin</search>"))
    refused = await coherence_judge(judge(own, retriever, force_verdict=False)).verify(CASE)
    assert (refused.status, refused.stop_reason, refused.p_correct) == (Status.TRUNCATED, StopReason.MAX_SEARCHES, None)
    assert retriever.queries == []


async def test_a_guided_judge_begins_with_the_steps() -> None:
    retriever = FakeRetriever()
    own = engine(lambda text: "1" if text.endswith("<answer>") else " it is first-line.\n</think>")
    judgment = await coherence_judge(judge(own, retriever, "guided")).verify(CASE)
    assert (judgment.status, judgment.forced, retriever.queries) == (Status.SCORED, True, [])
    assert judgment.reasoning.startswith(CLAIM_LEAD)


@pytest.mark.parametrize("mode", ["free", "guided"])
def test_the_two_questions_have_ids_of_their_own(mode: Mode) -> None:
    first = judge(engine(Turns()), mode=mode)
    second = coherence_judge(first)
    assert second.judge_id != first.judge_id
    assert second.judge_id == coherence_judge(judge(engine(Turns()), mode=mode)).judge_id
    assert second.engine is first.engine
    assert second.retriever is first.retriever
    assert second.calibration is None
