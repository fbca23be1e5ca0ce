"""What every service tells Prometheus: its answers by route and status, and how long they took. Each adds counts of its own."""

from collections import Counter
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from retrieval.stats import Histogram

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
UNKNOWN = "other"  # for addresses that no route has: anybody could make new rows in the table
_SECONDS = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    120.0,
    300.0,
    600.0,
)


class Exposition(Collector):
    """Reads counts when it is asked for them. Those of answers are kept here, on the event loop."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self._answers = Counter[tuple[str, int]]()
        self._seconds: dict[str, Histogram] = {}

    def text(self) -> bytes:
        """The exposition format."""
        return generate_latest(self._registry)

    def answered(self, path: str, status: int, seconds: float) -> None:
        """Count an answer.

        Args:
            path: of the route, with its parameters' names; `UNKNOWN` if there is none.
            status: of HTTP.
            seconds: from the head of the request to the head of the answer.
        """
        self._answers[path, status] += 1
        if path not in self._seconds:
            self._seconds[path] = Histogram(_SECONDS)
        self._seconds[path].observe(seconds)

    def collect(self) -> Iterable[Metric]:
        answers = CounterMetricFamily("medverify_http_answers", "Answers sent.", labels=["path", "status"])
        for (path, status), count in self._answers.items():
            answers.add_metric([path, str(status)], count)
        yield answers
        seconds = HistogramMetricFamily(
            "medverify_http_answer_seconds", "Seconds until the head of an answer was sent.", labels=["path"]
        )
        for path, histogram in self._seconds.items():
            add(seconds, [path], histogram)
        yield seconds


def add(family: HistogramMetricFamily, labels: list[str], histogram: Histogram) -> None:
    """A histogram of ours as a row of one of Prometheus's."""
    buckets = [("+Inf" if bound == float("inf") else str(bound), count) for bound, count in histogram.cumulative()]
    family.add_metric(labels, buckets, histogram.sum)
