"""Spans for OpenTelemetry: request > episode > think, search, verdict. Off unless the standard OTEL_ variables ask for them."""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from starlette.types import Scope

from verifier.events import Decided, Event, Searched, Thought
from verifier.types import Judgment

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

logger = logging.getLogger(__name__)

_STEPS: dict[type[Event], str] = {Thought: "think", Searched: "search", Decided: "verdict"}


class _Unseen:
    """A span that nobody looks at."""

    def answered(self, route: str, status: int) -> None:
        """Not told to anybody."""

    def told(self, event: Event) -> None:
        """Not told to anybody."""

    def ended(self, judgment: Judgment) -> None:
        """Not told to anybody."""


_UNSEEN = _Unseen()


class Tracing:
    """Follows requests and episodes, if there is a tracer; else every span is one that nobody looks at.

    Spans hold ids, counts and times, and nothing of what a case says.
    """

    def __init__(self, tracer: "Tracer | None" = None, flush: Callable[[], object] | None = None) -> None:
        """Args:
        tracer: makes the spans.
        flush: sends those that still wait to be sent; blocks.
        """
        self._tracer = tracer
        self._flush = flush

    @property
    def on(self) -> bool:
        """Somebody looks at the spans."""
        return self._tracer is not None

    async def aclose(self) -> None:
        """Send what waits to be sent: a process that ends by a signal does nothing more."""
        if self._flush is not None:
            await asyncio.to_thread(self._flush)

    @contextmanager
    def request(self, scope: Scope, name: str) -> Iterator["RequestSpan | _Unseen"]:
        """The span of a request; it continues the caller's trace, if the caller sent one.

        Args:
            scope: of the request.
            name: its id.
        """
        if self._tracer is None:
            yield _UNSEEN
            return
        from opentelemetry import propagate
        from opentelemetry.trace import SpanKind

        carried = {key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]}
        attributes = {"http.request.method": scope["method"], "medverify.request_id": name}
        with self._tracer.start_as_current_span(
            scope["method"], propagate.extract(carried), SpanKind.SERVER, attributes
        ) as span:
            yield RequestSpan(span, scope["method"])

    @contextmanager
    def episode(self) -> Iterator["EpisodeSpan | _Unseen"]:
        """The span of an episode, within the request that began it."""
        if self._tracer is None:
            yield _UNSEEN
            return
        with self._tracer.start_as_current_span("episode") as span:
            yield EpisodeSpan(span, self._tracer)


class RequestSpan:
    """A request that is being answered."""

    def __init__(self, span: "Span", method: str) -> None:
        self._span = span
        self._method = method

    def answered(self, route: str, status: int) -> None:
        """Which route gave which status."""
        from opentelemetry.trace import StatusCode

        self._span.update_name(f"{self._method} {route}")
        self._span.set_attributes({"http.route": route, "http.response.status_code": status})
        if status >= 500:
            self._span.set_status(StatusCode.ERROR)


class EpisodeSpan:
    """An episode under way."""

    def __init__(self, span: "Span", tracer: "Tracer") -> None:
        self._span = span
        self._tracer = tracer

    def told(self, event: Event) -> None:
        """A step is over: its span is made from the seconds that it took."""
        if (name := _STEPS.get(type(event))) is None:
            return
        now = time.time_ns()
        took_s = event.seconds if isinstance(event, Thought | Searched | Decided) else 0.0
        step = self._tracer.start_span(name, start_time=now - int(took_s * 1e9))
        if isinstance(event, Searched):
            step.set_attribute("medverify.passages", len(event.search.passages))
        step.end(now)

    def ended(self, judgment: Judgment) -> None:
        """It ended by itself."""
        self._span.set_attributes(
            {
                "medverify.judge_id": judgment.judge_id,
                "medverify.case_digest": judgment.case_digest,
                "medverify.status": judgment.status.value,
                "medverify.stop_reason": judgment.stop_reason.value,
                "medverify.turns": judgment.turns,
                "medverify.prompt_tokens": judgment.usage.prompt_tokens,
                "medverify.policy_tokens": judgment.usage.policy_tokens,
            }
        )


def tracing_of(environment: Mapping[str, str] = os.environ) -> Tracing:
    """What the environment asks for: the OTEL_ variables of the OpenTelemetry specification, for traces over OTLP and HTTP.

    A program that has set up OpenTelemetry already (`opentelemetry-instrument`) keeps what it has set up.
    """
    asked = any(value for name, value in environment.items() if name.startswith("OTEL_"))
    if (
        not asked
        or environment.get("OTEL_SDK_DISABLED", "").lower() == "true"
        or environment.get("OTEL_TRACES_EXPORTER", "otlp") == "none"
    ):
        return Tracing()
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        logger.warning("OTEL_ variables are set, but OpenTelemetry is not installed: pip install 'medverify[otel]'")
        return Tracing()
    flush: Callable[[], object] | None = None
    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider):
        name = environment.get("OTEL_SERVICE_NAME") or "medverify"
        made = TracerProvider(resource=Resource.create({"service.name": name}))
        # Not set for the whole process: other libraries would add spans that nobody asked for.
        made.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        provider, flush = made, made.force_flush
    return Tracing(provider.get_tracer("medverify"), flush)
