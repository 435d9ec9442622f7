"""Sends the metrics that Prometheus would scrape to OpenTelemetry instead, such as a collector's OTLP receiver."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from prometheus_client import REGISTRY
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

try:
    from opentelemetry.metrics import Observation
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import (
        AggregationTemporality,
        Gauge,
        Histogram,
        HistogramDataPoint,
        Metric,
        MetricExporter,
        MetricExportResult,
        MetricsData,
        NumberDataPoint,
        PeriodicExportingMetricReader,
        ScopeMetrics,
        Sum,
    )
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
except ImportError:
    from ..errors import MissingExtra

    raise MissingExtra("opentelemetry-sdk", "otel") from None

from ..times.clock import wall_s
from ..version import __version__

_PREFIX = "streamdq_"
_UNITS = {"seconds": "s", "bytes": "By", "milliseconds": "ms"}
_CUMULATIVE = AggregationTemporality.CUMULATIVE
_scope = InstrumentationScope("streamdq", __version__)


def send_metrics(
    exporter: MetricExporter,
    interval_s: float = 60,
    *,
    collectors: Iterable[Collector] = (REGISTRY,),
    resource: Resource | None = None,
) -> MeterProvider:
    """Hands streamdq's metrics to an exporter every ``interval_s`` seconds, from a thread, until the provider that this
    returns is shut down; then once more.

    ``collectors``: where they come from; by default what this process counts. ``resource`` None: as
    ``OTEL_SERVICE_NAME`` and ``OTEL_RESOURCE_ATTRIBUTES`` say. Counters and histograms are cumulative, whatever
    temporality the exporter prefers.
    """
    reader = PeriodicExportingMetricReader(_Adding(exporter, collectors), interval_s * 1000)
    provider = MeterProvider([reader], Resource.create() if resource is None else resource)
    since = time.monotonic()
    provider.get_meter("streamdq", __version__).create_observable_gauge(  # a reader of nothing would export nothing
        "streamdq.process.uptime", [lambda _: [Observation(time.monotonic() - since)]], "s", "Since metrics are sent."
    )
    return provider


class _Adding(MetricExporter):
    """Adds the collectors' metrics to what is exported."""

    def __init__(self, exporter: MetricExporter, collectors: Iterable[Collector]) -> None:
        super().__init__()
        self._exporter = exporter
        self._collectors = list(collectors)
        self._since_ns = int(wall_s() * 1e9)

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> MetricExportResult:
        first, *others = metrics_data.resource_metrics
        added = ScopeMetrics(_scope, list(self._collected()), "")
        all_of_first = replace(first, scope_metrics=[*first.scope_metrics, added])
        return self._exporter.export(MetricsData([all_of_first, *others]), timeout_millis, **kwargs)

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return self._exporter.force_flush(timeout_millis)

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        self._exporter.shutdown(timeout_millis, **kwargs)

    def _collected(self) -> Iterator[Metric]:
        now_ns = int(wall_s() * 1e9)
        for collector in self._collectors:
            for family in collector.collect():
                if family.name.startswith(_PREFIX) and (metric := self._metric(family, now_ns)) is not None:
                    yield metric

    def _metric(self, family: Family, now_ns: int) -> Metric | None:
        data: Sum | Gauge | Histogram
        if family.type == "counter":
            samples = [sample for sample in family.samples if sample.name == f"{family.name}_total"]
            data = Sum([self._number(sample, now_ns) for sample in samples], _CUMULATIVE, is_monotonic=True)
        elif family.type == "gauge":
            data = Gauge([self._number(sample, now_ns) for sample in family.samples])
        elif family.type == "histogram":
            data = Histogram(list(self._histograms(family, now_ns)), _CUMULATIVE)
        else:
            return None
        unit = _UNITS.get(family.name.rpartition("_")[2], "")
        return Metric(family.name, family.documentation, unit, data) if data.data_points else None

    def _number(self, sample: Sample, now_ns: int) -> NumberDataPoint:
        return NumberDataPoint(sample.labels, self._since_ns, now_ns, sample.value)

    def _histograms(self, family: Family, now_ns: int) -> Iterator[HistogramDataPoint]:
        """Prometheus counts what is up to a bound, OpenTelemetry what is between two."""
        found: dict[tuple[tuple[str, str], ...], dict[str, Any]] = {}
        for sample in family.samples:
            labels = dict(sample.labels)
            bound = labels.pop("le", None)
            parts = found.setdefault(tuple(sorted(labels.items())), {"bounds": [], "upto": [], "sum": 0.0})
            if bound is not None:
                parts["bounds"].append(float(bound))
                parts["upto"].append(int(sample.value))
            elif sample.name.endswith("_sum"):
                parts["sum"] = sample.value
        for key, parts in found.items():
            upto = parts["upto"]
            if not upto:
                continue
            between = [count - before for before, count in zip([0, *upto], upto, strict=False)]
            bounds = [bound for bound in parts["bounds"] if bound != math.inf]
            yield HistogramDataPoint(
                dict(key), self._since_ns, now_ns, upto[-1], parts["sum"], between, bounds,
                min=None, max=None,  # type: ignore[arg-type]  # they are optional in OTLP, and not known here
            )  # fmt: skip
