"""What an evaluation found: everything that the tables, figures and examples of a report show, and nothing else.

`report.json` is this; the page, the Markdown and the figures are drawn from it alone. A value that is undefined is null.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

SCHEMA_VERSION: Literal[2] = 2


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Figure(_Part):
    """A value with its 95 % interval over questions."""

    value: float | None
    low: float | None = None
    high: float | None = None


class Curve(_Part):
    """Points of a line, in the order in which it is drawn."""

    x: list[float]
    y: list[float]


class Bin(_Part):
    """One bar of a reliability diagram: the traces whose p lies in the same range."""

    p: Annotated[float, Field(description="Mean p of the traces.")]
    right: Annotated[float, Field(description="Share of them that are right.")]
    count: int


class Composition(_Part):
    """What was measured on."""

    questions: int
    traces: int
    labelled: int
    right: Annotated[int, Field(description="Traces with the right final answer.")]
    unreadable: Annotated[int, Field(description="Traces whose final answer cannot be read.")]
    at_odds: Annotated[
        int, Field(description="Traces whose label and answer disagree: metrics go by labels, selection by answers.")
    ]
    without_gold: Annotated[int, Field(description="Questions whose right answer is unknown: left out of selection.")]
    come_to: Annotated[
        int | None,
        Field(
            description="Questions all of whose traces the judge has come to: the others are left out. Null: no judge."
        ),
    ]
    generators: Annotated[dict[str, int], Field(description="Traces by who wrote them.")]


class Votes(_Part):
    """What the traces are worth without a judge."""

    generator: str
    mean: Annotated[Figure, Field(description="Share of traces that are right; unreadable ones are wrong.")]
    majority: Annotated[Figure, Field(description="Share of questions whose most frequent answer is right.")]
    any_right: Annotated[Figure, Field(description="Share of questions with a right trace: the ceiling of selection.")]


class Verification(_Part):
    """How well one scorer tells right traces from wrong ones."""

    scorer: str
    generator: str
    traces: Annotated[int, Field(description="Judged and labelled: what the figures rest on.")]
    right: int
    figures: dict[str, Figure]


class Selection(_Part):
    """Accuracy of the answers that a strategy picks, by the number of traces a question."""

    strategy: str
    scorer: Annotated[str, Field(description="Whose p the strategy uses; empty: nobody's.")]
    generator: str
    accuracy: dict[int, Figure]


class ScorerCurves(_Part):
    """What the diagrams of one scorer show."""

    scorer: str
    roc: Annotated[Curve | None, Field(description="Null for calibrated p, whose order is the judge's.")]
    risk_coverage: Curve | None
    reliability: Annotated[list[Bin], Field(description="Of judges; empty for a baseline, whose p is an order.")]
    histogram_right: Annotated[list[int], Field(description="Right traces by p, in equal ranges from 0 to 1.")]
    histogram_wrong: list[int]


class Compared(_Part):
    """One figure of two scorers on the same traces."""

    name: str
    first: float | None
    second: float | None
    difference: Annotated[Figure, Field(description="First minus second.")]
    p_value: Annotated[float | None, Field(description="Two-sided, of no difference.")]


class Paired(_Part):
    """The judge beside another scorer."""

    first: str
    second: str
    rows: list[Compared]


class BudgetPoint(_Part):
    """Drawing and judging until the leading answer is safe, at one threshold."""

    threshold: Annotated[float | None, Field(description="Null: no early stop.")]
    samples: Annotated[float, Field(description="Traces drawn and judged a question, on average.")]
    accuracy: Figure


class Saving(_Part):
    """How many times fewer traces the adaptive rule needs for the accuracy of a fixed number."""

    against: str
    times: Figure
    samples: Annotated[float | None, Field(description="That the rule spent; null: somewhere along its curve.")] = None
    accuracy: Annotated[Figure | None, Field(description="That it had.")] = None


class Budget(_Part):
    """Accuracy against samples spent under a stop rule, beside fixed numbers of traces."""

    strategy: str
    scorer: Annotated[str, Field(description="Whose p the votes weigh; empty: nobody's.")]
    rule: str
    points: list[BudgetPoint]
    fixed: Annotated[dict[int, Figure], Field(description="The same vote with so many traces for every question.")]
    savings: list[Saving]


class Conduct(_Part):
    """How the judge went about it. Means are over judgments unless said otherwise."""

    scorer: str
    judgments: int
    missing: Annotated[int, Field(description="Traces that the run has not come to.")]
    statuses: dict[str, int]
    stop_reasons: dict[str, int]
    forced: Annotated[Figure, Field(description="Share of verdicts whose position was forced.")]
    label_mass: Annotated[Figure, Field(description="Mean p(0) + p(1) at the verdict.")]
    turns: Figure
    searches: Annotated[int, Field(description="In all.")]
    searches_per_trace: Figure
    never_searched: Annotated[Figure, Field(description="Share of judgments without a search.")]
    empty: Annotated[Figure, Field(description="Share of searches that showed the judge no passage.")]
    repeated: Annotated[Figure, Field(description="Share of searches for what the episode had asked before.")]
    passages: Annotated[int, Field(description="Passages shown, in all.")]
    passages_per_search: Figure
    omitted: Annotated[int, Field(description="Passages found but left out for want of room, in all.")]
    well_formed: Annotated[Figure, Field(description="Share of passages with an id, a text and their rank.")]
    resolved: Annotated[
        Figure | None,
        Field(description="Share of passages that the index holds under that id, word for word; null: not checked."),
    ]


class Cost(_Part):
    """What one judged trace costs, on average."""

    scorer: str
    judgments: int
    prompt_tokens: float
    policy_tokens: float
    environment_tokens: float
    prefilled_tokens: float
    cached_tokens: float
    searches: float
    seconds: Annotated[float | None, Field(description="Wall-clock time of the run by traces judged; null: not kept.")]


class Agreement(_Part):
    """How far a judge agrees with itself over seeds."""

    seeds: list[int]
    traces: Annotated[int, Field(description="Judged with every seed.")]
    verdicts: Annotated[Figure, Field(description="Share of pairs of seeds that give the same verdict.")]
    unanimous: Annotated[Figure, Field(description="Share of traces with one verdict from all seeds.")]
    kappa: Annotated[Figure, Field(description="Fleiss' kappa: agreement beyond chance.")]
    spread: Annotated[Figure, Field(description="Mean standard deviation of p over seeds.")]


class Failure(_Part):
    """A trace that was not judged."""

    scorer: str
    trace: str
    status: str
    stop_reason: str
    detail: str


class Shown(_Part):
    """A passage as the judge saw it."""

    rank: int
    id: str
    title: str
    text: str
    source: str
    score: float


class Query(_Part):
    """One search of an example."""

    query: str
    omitted: int
    passages: list[Shown]


class Example(_Part):
    """One judgment to look at."""

    kind: str
    trace: str
    generator: str
    question: str
    options: dict[str, str]
    gold: str | None
    answer: str | None
    label: int | None
    reasoning: Annotated[str, Field(description="The trace that was judged.")]
    critique: str
    searches: list[Query]
    status: str
    detail: str
    verdict: int | None
    p: float | None
    p_calibrated: float | None


class PackReport(_Part):
    """All figures of one pack."""

    name: str
    composition: Composition
    votes: list[Votes]
    verification: list[Verification]
    paired: list[Paired]
    selection: list[Selection]
    curves: list[ScorerCurves]
    budgets: list[Budget]
    conduct: list[Conduct]
    cost: list[Cost]
    agreement: Agreement | None
    failures: list[Failure]
    examples: list[Example]


class JudgeFacts(_Part):
    """Who judged."""

    model: str
    mode: str
    judge_id: str
    index: str
    seeds: list[int]


class Report(_Part):
    """One evaluation."""

    schema_version: Literal[2] = SCHEMA_VERSION
    judge: JudgeFacts | None
    packs: list[PackReport]


class ComparedPack(_Part):
    """Two runs on one pack."""

    name: str
    questions: int
    traces: Annotated[int, Field(description="That both runs have.")]
    come_to: Annotated[
        int, Field(description="Questions all of whose traces both runs have come to: what selection rests on.")
    ]
    judged: Annotated[int, Field(description="By both.")]
    rows: list[Compared]


class Comparison(_Part):
    """Two runs."""

    schema_version: Literal[2] = SCHEMA_VERSION
    first: str
    second: str
    packs: list[ComparedPack]
