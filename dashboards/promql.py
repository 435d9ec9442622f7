"""PromQL with placeholders: a signal's query is written once; labels and window are filled in where it is used.

Placeholders are ``@by``, the aggregation's labels; ``@window``, the range; ``@quantile``; and, within braces, the label
matchers: ``@namespace`` for any series, ``@topic`` for a series that also has the label topic, ``@group`` for one that
has the label group as well.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_MATCHERS = re.compile(r"\{([^{}]*?),?@(namespace|topic|group)\}")
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def seconds(duration: str) -> int:
    """``10m`` -> 600."""
    return int(duration[:-1]) * _UNITS_S[duration[-1]]


@dataclass(frozen=True, slots=True)
class Where:
    """Label matchers of one dashboard: ``namespace`` for every series, ``topic`` and ``group`` where the label
    exists.
    """

    namespace: str = ""
    topic: str = ""
    group: str = ""


EVERYWHERE = Where()
ONE_NAMESPACE = Where(namespace='namespace="$namespace"')
"""The namespace chosen in the dashboard's variable."""


@dataclass(frozen=True, slots=True)
class Signal:
    """One figure: its title, query and meaning.

    ``unit`` is Grafana's. ``legend`` names one series, in Grafana's ``{{label}}`` form.
    """

    title: str
    query: str
    unit: str
    description: str
    legend: str = ""

    def expr(
        self,
        *,
        by: Sequence[str] = (),
        window: str = "$__rate_interval",
        where: Where = EVERYWHERE,
        quantile: str = "",
    ) -> str:
        """The query with its placeholders filled in."""
        return fill(self.query.replace("@quantile", quantile), by=by, window=window, where=where)


def fill(query: str, *, by: Sequence[str] = (), window: str = "", where: Where = EVERYWHERE) -> str:
    """PromQL on one line. Empty braces are left out."""

    def matchers(found: re.Match[str]) -> str:
        own, kind = found.groups()
        parts = [own, where.namespace, where.topic * (kind != "namespace"), where.group * (kind == "group")]
        inside = ",".join(part for part in parts if part)
        return f"{{{inside}}}" if inside else ""

    text = _MATCHERS.sub(matchers, query)
    text = text.replace(" @by (", f" by ({', '.join(by)}) (" if by else "(").replace("@window", window)
    return re.sub(r"\s+", " ", text).strip()


@dataclass(frozen=True, slots=True)
class Scale:
    """Scales the rules' windows and patience, relative to production.

    A test that can't wait for hours builds the same rules with a small ``factor``. No window gets shorter than
    ``shortest_s``, which must cover a few scrapes.
    """

    factor: float = 1.0
    shortest_s: float = 0.0

    def window(self, duration: str) -> str:
        """A range, an offset or a ``for``, as PromQL writes it."""
        return duration if self.factor == 1.0 else f"{1000 * self.window_s(duration):.0f}ms"

    def window_s(self, duration: str) -> float:
        return max(self.shortest_s, self.factor * seconds(duration))

    def seconds(self, number: float) -> str:
        """A threshold in seconds, scaled."""
        return f"{self.factor * number:g}"
