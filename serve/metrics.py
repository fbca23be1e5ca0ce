"""What a retrieval server did, for Prometheus."""

from collections import Counter
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from retrieval.local import LocalRetriever
from retrieval.stats import Histogram

_COUNTERS = {
    "searches": "Queries asked for.",
    "cached": "Queries answered from the cache.",
    "coalesced": "Queries joined to the same one in flight.",
    "refused": "Queries turned away because the queue was full.",
    "abandoned": "Queries taken out of the queue unanswered: client gone or deadline passed.",
    "late": "Requests whose deadline passed before their answer.",
    "failed": "Queries that ended in an error.",
}


class RetrievalMetrics(Collector):
    """Reads the engine's counts when it is asked for them; keeps the answers by route and status itself."""

    def __init__(self, retriever: LocalRetriever) -> None:
        self._retriever = retriever
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self.answers = Counter[tuple[str, int]]()

    def text(self) -> bytes:
        """The exposition format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterable[Metric]:
        stats = self._retriever.stats
        index = InfoMetricFamily("medverify_index", "What is searched.")
        index.add_metric([], {"digest": self._retriever.digest, "profile": self._retriever.profile})
        yield index
        for name, text in _COUNTERS.items():
            yield CounterMetricFamily(f"medverify_retrieval_{name}", text, value=getattr(stats, name))
        yield GaugeMetricFamily(
            "medverify_retrieval_waiting", "Queries that no batch has taken yet.", value=self._retriever.waiting
        )
        sizes = HistogramMetricFamily("medverify_retrieval_batch_size", "Queries worked on together.")
        _add(sizes, [], stats.batch_size)
        yield sizes
        stages = HistogramMetricFamily(
            "medverify_retrieval_stage_seconds",
            "Seconds a query waited in the queue; seconds a batch took in each other stage.",
            labels=["stage"],
        )
        for stage, histogram in stats.stages.items():
            _add(stages, [stage], histogram)
        yield stages
        answers = CounterMetricFamily("medverify_http_answers", "Answers sent.", labels=["path", "status"])
        for (path, status), count in self.answers.items():
            answers.add_metric([path, str(status)], count)
        yield answers


def _add(family: HistogramMetricFamily, labels: list[str], histogram: Histogram) -> None:
    buckets = [("+Inf" if bound == float("inf") else str(bound), count) for bound, count in histogram.cumulative()]
    family.add_metric(labels, buckets, histogram.sum)
