"""``opentelemetry-instrument`` in front of a program."""

from __future__ import annotations

import asyncio
import gzip
import os
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.callback.receiver import Receiver, answer, receiving
from tests.redis.harness import NAMESPACE
from tests.servers import Server

PROGRAM = """
import sys
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from streamdq import Queue, Worker
from streamdq.telemetry.instrumentor import StreamdqInstrumentor
from streamdq.telemetry.otel_metrics import send_metrics

url, namespace, collector = sys.argv[1:]
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(collector + "/v1/traces")))
StreamdqInstrumentor().instrument(tracer_provider=provider)
metrics = send_metrics(OTLPMetricExporter(collector + "/v1/metrics"), interval_s=600)
worker = Worker(url, namespace)

@worker.handler("t")
def handler(body: int) -> None:
    if body == 3:
        raise ValueError("odd")

with Queue(url, namespace) as queue:
    for i in range(5):
        queue.enqueue("t", i, retry="none")
    worker.run(burst=True)
    queue.purge("t", all=True)
StreamdqInstrumentor().uninstrument()
Queue(url, namespace).close()
provider.shutdown()
metrics.shutdown()
"""


@asynccontextmanager
async def collecting() -> AsyncIterator[Receiver]:
    """Takes what a collector's OTLP receiver takes over HTTP."""
    async with receiving() as receiver:
        receiver.reply = answer(200)
        yield receiver


def body_of(receiver: Receiver, path: str) -> list[bytes]:
    return [
        gzip.decompress(request.body) if request.headers.get("content-encoding") == "gzip" else request.body
        for request in receiver.requests
        if request.path.endswith(path)
    ]


@pytest.mark.thorough
async def test_a_program_sends_spans_and_metrics_to_a_collector(redis_server: Server) -> None:
    async with collecting() as receiver:
        collector = receiver.url.removesuffix("/hook")
        arguments = [sys.executable, "-c", PROGRAM, redis_server.url, NAMESPACE, collector]
        environment = {**os.environ, "OTEL_SERVICE_NAME": "shop"}
        ended = await asyncio.to_thread(
            subprocess.run, arguments, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert ended.returncode == 0, ended.stderr
        spans = [
            span
            for body in body_of(receiver, "/v1/traces")
            for found in ExportTraceServiceRequest.FromString(body).resource_spans
            for scope in found.scope_spans
            for span in scope.spans
        ]
        (metrics,) = [ExportMetricsServiceRequest.FromString(body) for body in body_of(receiver, "/v1/metrics")]
    assert Counter(span.kind for span in spans) == {Span.SPAN_KIND_PRODUCER: 5, Span.SPAN_KIND_CONSUMER: 5}
    senders = {span.span_id for span in spans if span.kind == Span.SPAN_KIND_PRODUCER}
    assert {link.span_id for span in spans for link in span.links} == senders

    (resource,) = metrics.resource_metrics
    assert {"service.name": "shop"}.items() <= {
        a.key: a.value.string_value for a in resource.resource.attributes
    }.items()
    by_name = {metric.name: metric for scope in resource.scope_metrics for metric in scope.metrics}
    ends = {
        next(a.value.string_value for a in point.attributes if a.key == "outcome"): point.as_double
        for point in by_name["streamdq_job_attempts"].sum.data_points
        if point.as_double
    }
    assert ends == {"done": 4, "dead": 1}
    assert by_name["streamdq_job_attempts"].sum.is_monotonic
    (late,) = by_name["streamdq_job_lateness_seconds"].histogram.data_points
    assert (late.count, sum(late.bucket_counts)) == (5, 5)
    assert len(late.bucket_counts) == len(late.explicit_bounds) + 1
    assert by_name["streamdq_job_lateness_seconds"].unit == "s"
