"""Best of N: several traces of one question, judged, and the one to keep."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from medverify.replies import Candidate, Selected, Strategy
from medverify.sync_client import Client


@dataclass(frozen=True, slots=True)
class Choice:
    """What came of the candidates of one question."""

    trace: str | None  # the chosen one; None where nothing could be chosen
    answer: str | None  # what it comes to, if that can be read
    selected: Selected  # votes, judgments, how many were not judged


def best_of(
    question: str,
    traces: Iterable[str] | Callable[[str], str],
    n: int | None = None,
    *,
    options: Mapping[str, str] | None = None,
    strategy: Strategy = "best_of_n",
    client: Client | None = None,
    **select: Any,
) -> Choice:
    """Choose the best of several traces of a question.

    Args:
        question: the question, as the judge shall read it.
        traces: what to choose among; or a function from question to trace, which is called `n` times.
        n: how many traces to draw from the function.
        options: letter to text, if the question is multiple choice.
        strategy: `best_of_n` takes the trace with the highest probability; `hard`, `soft` and `majority` vote among answers.
        client: of the service; else one for MEDVERIFY_URL, which is closed afterwards.
        select: more arguments of `Client.select`: `seed`, `deadline_s`.

    Raises:
        ValueError: no traces are given, or no URL.
        RemoteJudgeError: the service could not be asked.
    """
    if callable(traces):
        if n is None or n < 1:
            raise ValueError(f"n is {n}; how many traces shall the function give?")
        drawn = [traces(question) for _ in range(n)]
    else:
        drawn = list(traces)
    if not drawn:
        raise ValueError("there are no traces to choose among")
    candidates = [Candidate(trace=trace) for trace in drawn]
    own = client is None
    asked = client or Client()
    try:
        selected = asked.select(question, candidates, options=options, strategy=strategy, **select)
    finally:
        if own:
            asked.close()
    chosen = None if selected.chosen is None else drawn[selected.chosen]
    return Choice(trace=chosen, answer=selected.answer, selected=selected)
