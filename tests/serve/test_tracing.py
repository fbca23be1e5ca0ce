"""Spans, told to OpenTelemetry's own SDK."""

import os
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx2
from fastapi.testclient import TestClient
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from serve_fakes import CASE, INFO, cases_of, judge_of

from configs.settings import ServeSettings
from serve.app import create_app
from serve.tracing import Tracing, tracing_of


def traced() -> tuple[TestClient, InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing = Tracing(provider.get_tracer("test"))
    return TestClient(create_app(judge_of(), ServeSettings(), INFO, tracing=tracing)), exporter


def ancestry(span: ReadableSpan, spans: list[ReadableSpan]) -> str:
    """The names from the request down to this span."""
    parents = {one.context.span_id: one for one in spans if one.context}
    names = [span.name]
    while span.parent and span.parent.span_id in parents:
        span = parents[span.parent.span_id]
        names.append(span.name)
    return " > ".join(reversed(names))


def test_an_episode_is_within_its_request_and_its_steps_within_it() -> None:
    client, exporter = traced()
    with client:
        client.post("/verify", json=CASE, headers={"X-Request-ID": "r-1"})
    spans = [
        span
        for span in exporter.get_finished_spans()
        if "/verify" in ancestry(span, list(exporter.get_finished_spans()))
    ]
    assert sorted(ancestry(span, spans) for span in spans) == [
        "POST /verify",
        "POST /verify > episode",
        "POST /verify > episode > search",
        "POST /verify > episode > think",
        "POST /verify > episode > think",
        "POST /verify > episode > verdict",
    ]
    by_name = {span.name: span for span in spans}
    request, episode = by_name["POST /verify"].attributes or {}, by_name["episode"].attributes or {}
    assert (request["medverify.request_id"], request["http.response.status_code"]) == ("r-1", 200)
    assert (episode["medverify.status"], episode["medverify.turns"]) == ("scored", 2)
    said = str([(span.name, dict(span.attributes or {})) for span in spans])
    assert "warfarin" not in said.lower()
    for span in spans:
        assert span.start_time is not None
        assert span.end_time is not None
        assert span.start_time <= span.end_time


def test_a_callers_trace_is_continued() -> None:
    client, exporter = traced()
    trace, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    with client:
        client.post("/verify", json={"cases": cases_of(2)}, headers={"traceparent": f"00-{trace}-{parent}-01"})
    spans = exporter.get_finished_spans()
    assert {format(span.context.trace_id, "032x") for span in spans if span.context} == {trace}
    assert [span.name for span in spans].count("episode") == 2


def test_nothing_is_traced_unless_it_is_asked_for() -> None:
    for environment in (
        {},
        {"OTEL_SERVICE_NAME": ""},
        {"OTEL_SERVICE_NAME": "judge", "OTEL_SDK_DISABLED": "true"},
        {"OTEL_SERVICE_NAME": "judge", "OTEL_TRACES_EXPORTER": "none"},
    ):
        assert not tracing_of(environment).on


class Collector(BaseHTTPRequestHandler):
    """Takes spans over OTLP and remembers their names with the name of the service."""

    names: list[tuple[str, str]] = []  # noqa: RUF012 - one collector in this process

    def do_POST(self) -> None:
        assert self.path == "/v1/traces"
        sent = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["Content-Length"])))
        for resource in sent.resource_spans:
            service = {one.key: one.value.string_value for one in resource.resource.attributes}["service.name"]
            self.names.extend((service, span.name) for scope in resource.scope_spans for span in scope.spans)
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


def test_the_variables_of_the_specification_send_spans_to_a_collector() -> None:
    collector = HTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=collector.serve_forever)
    thread.start()
    endpoint = f"http://127.0.0.1:{collector.server_port}"
    environment = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_SERVICE_NAME": "judge-7"}
    command = [sys.executable, str(Path(__file__).with_name("scripted_server.py"))]
    try:
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as server:
            assert server.stderr
            line = next(line for line in server.stderr if "Uvicorn running on" in line)
            url = line.split("running on ")[1].split()[0]
            assert httpx2.post(f"{url}/verify", json=CASE, timeout=30).json()["verdict"] == 1
            server.send_signal(signal.SIGTERM)  # what waits to be sent is sent before the end
            server.stderr.read()
    finally:
        collector.shutdown()
        thread.join()
        collector.server_close()
    assert {service for service, _ in Collector.names} == {"judge-7"}
    assert {name for _, name in Collector.names} == {"POST /verify", "episode", "think", "search", "verdict"}
