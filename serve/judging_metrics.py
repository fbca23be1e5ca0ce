"""What a judge's service did, for Prometheus."""

from collections.abc import Iterable, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric

from serve.exposition import Exposition, add
from serve.judging import JudgingService
from serve.schemas import Info
from verifier.types import Status


class JudgingMetrics(Exposition):
    """Adds the service's counts to those of the answers."""

    def __init__(self, service: JudgingService, info: Info) -> None:
        self._service = service
        self._info = info
        super().__init__()

    def collect(self) -> Iterable[Metric]:
        yield from self._about()
        yield from self._now()
        yield from self._since_the_start()
        yield from self._kept()
        yield from super().collect()

    def _about(self) -> Iterable[Metric]:
        judge = InfoMetricFamily("medverify_judge", "What judges.")
        info = self._info
        labels = {"judge_id": info.judge_id, "model": info.model, "prompt": info.prompt, "version": info.version}
        judge.add_metric([], {**labels, "index_digest": info.index_digest})
        yield judge

    def _now(self) -> Iterable[Metric]:
        service = self._service
        rows = (
            ("cases_in_flight", "Cases admitted and not answered.", service.admission.in_flight),
            ("episodes", "Cases that have a place in the engine.", service.places.taken),
            ("episode_places", "Cases that can have one at the same time.", service.places.count),
            ("cases_waiting", "Cases that wait for a place, once for each caller who asked.", service.places.waiting),
            ("draining", "1: new work is refused and the service stops when it is done.", int(service.draining)),
        )
        for name, text, value in rows:
            yield GaugeMetricFamily(f"medverify_{name}", text, value=value)

    def _since_the_start(self) -> Iterable[Metric]:
        stats = self._service.stats
        statuses = {status.value: stats.given[status] for status in Status}
        yield _counter("judgments", "Judgments given, however they came about.", "status", statuses)
        yield CounterMetricFamily("medverify_cached", "Judgments given from the cache.", value=stats.cached)
        text = "Cases joined to the episode of an equal one in flight."
        yield CounterMetricFamily("medverify_coalesced", text, value=stats.coalesced)
        text = "Episodes ended because nobody waited for them any more."
        yield CounterMetricFamily("medverify_cancelled", text, value=stats.cancelled)
        refused = {why: self._service.admission.refused[why] for why in ("full", "share", "deadline", "draining")}
        yield _counter("refused_cases", "Cases turned away with 503.", "reason", refused)
        tokens = {kind: stats.tokens[kind] for kind in ("prompt", "policy", "environment", "prefilled", "cached")}
        yield _counter("tokens", "Tokens of episodes that ended by themselves, see `usage`.", "kind", tokens)
        stages = HistogramMetricFamily(
            "medverify_stage_seconds",
            "Seconds that an episode waited for its place, and took for each thought, each search and its verdict.",
            labels=["stage"],
        )
        for stage in ("queue", "think", "search", "verdict"):
            add(stages, [stage], getattr(stats, stage))
        yield stages
        episodes = HistogramMetricFamily(
            "medverify_episode_seconds", "Seconds of an episode from its place to its end."
        )
        add(episodes, [], stats.episode)
        yield episodes

    def _kept(self) -> Iterable[Metric]:
        stores = self._service.stores
        if stores.cache is not None:
            kept = stores.cache.stats
            rows = {name: getattr(kept, name) for name in ("hits", "misses", "stored", "evicted", "errors", "dropped")}
            yield _counter("cache_events", "What the judgment cache did.", "event", rows)
        if stores.audit is not None:
            written = {"written": stores.audit.stats.written, "failed": stores.audit.stats.failed}
            yield _counter("audited", "Judgments for the audit log; failed: could not be written.", "outcome", written)


def _counter(name: str, text: str, label: str, rows: Mapping[str, int]) -> CounterMetricFamily:
    family = CounterMetricFamily(f"medverify_{name}", text, labels=[label])
    for value, count in rows.items():
        family.add_metric([value], count)
    return family
