"""What a retrieval server did, for Prometheus."""

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric

from retrieval.local import LocalRetriever
from serve.exposition import Exposition, add

_COUNTERS = {
    "searches": "Queries asked for.",
    "cached": "Queries answered from the cache.",
    "coalesced": "Queries joined to the same one in flight.",
    "refused": "Queries turned away because the queue was full.",
    "abandoned": "Queries taken out of the queue unanswered: client gone or deadline passed.",
    "late": "Requests whose deadline passed before their answer.",
    "failed": "Queries that ended in an error.",
}


class RetrievalMetrics(Exposition):
    """Adds the engine's counts to those of the answers."""

    def __init__(self, retriever: LocalRetriever) -> None:
        self._retriever = retriever
        super().__init__()

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
        add(sizes, [], stats.batch_size)
        yield sizes
        stages = HistogramMetricFamily(
            "medverify_retrieval_stage_seconds",
            "Seconds a query waited in the queue; seconds a batch took in each other stage.",
            labels=["stage"],
        )
        for stage, histogram in stats.stages.items():
            add(stages, [stage], histogram)
        yield stages
        yield from super().collect()
