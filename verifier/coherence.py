"""The other question to a judge: not whether a trace is true, but whether it holds together.

It is put to the same model, with a prompt of its own and without search: nothing outside the trace bears on it. The answer has
its own `judge_id`, so that the two are never taken for one another.
"""

from verifier.judge import Judge
from verifier.prompt import load_prompt

PROMPT = "coherence"
CLAIM_LEAD = "Step by step, the reasoning says that"  # how a guided judge's thought begins


def coherence_judge(judge: Judge) -> Judge:
    """Who decides, on `judge`'s engine, whether a trace is consistent, free of contradiction and clear in its conclusion.

    Its p(1) is the coherence of a trace, in 0..1. It shares engine and retriever with `judge`, which closes them; a calibration
    was fitted to the other question and is left out.
    """
    settings = judge.settings.without_search()
    guided = settings.guided.model_copy(update={"claim_lead": CLAIM_LEAD})
    settings = settings.model_copy(update={"guided": guided})
    return Judge(judge.engine, judge.retriever, load_prompt(PROMPT), judge.mode, settings)
