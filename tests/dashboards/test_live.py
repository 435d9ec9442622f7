"""A running shop, watched by a real Prometheus: panels show something, and alerts fire when they should."""

import json
import math
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from streamdq.keys import NamespaceKeys
from tests.conftest import BINARIES
from tests.dashboards.live import Prometheus, Shop
from tests.dashboards.live_shop import FAILING, HELD, SLOW
from tests.dashboards.tools import needs_prometheus
from tests.servers import Server
from tests.waiting import until

DASHBOARDS = sorted((Path(__file__).parents[2] / "dashboards" / "grafana").glob("*.json"))
COMMAND = ("-m", "streamdq")
FILLED_IN = {"$__rate_interval": "3s", "[5m]": "[3s]", "$__range": "30s", "$topic": FAILING, "$group": ".*"}
FILLED_IN["$namespace"] = "streamdq"
EXPECTED = {"StreamdqFailing", "StreamdqDeadLettersGrowing", "StreamdqReclaiming", "StreamdqTargetDown"}
NEVER = {
    "StreamdqJobsLost",
    "StreamdqImbalance",
    "StreamdqRedisRefusesWrites",
    "StreamdqFiguresAbsent",
    "StreamdqClockSkew",
}

pytestmark = [
    pytest.mark.thorough,  # what rules and panels ask for is compared with the code by test_built, and by promtool
    needs_prometheus,
    pytest.mark.skipif(not BINARIES, reason="no Redis server on this machine"),
]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """Two workers, of which one will be killed and the other one's mover is active; customers and the exporter."""
    directory = tmp_path_factory.mktemp("shop")
    with Server(BINARIES[-1]) as server, Shop(server.url, directory) as running:
        database = f"sqlite:///{directory / 'orders.db'}"
        running.start("customers", "-m", "tests.dashboards.live_shop", server.url, database, "PORT")
        running.start("exporter", *COMMAND, "exporter", "--port", "PORT")
        start_worker(running, "worker")
        with server.client() as client:
            until(lambda: client.exists(NamespaceKeys("streamdq").mover), f"a mover is active:\n{running.logs()}")
        start_worker(running, "doomed")
        yield running


def start_worker(shop: Shop, name: str) -> None:
    shop.start(name, *COMMAND, "worker", f"tests.dashboards.live_shop:{name}", "--metrics-port", "PORT")


@pytest.fixture(scope="module")
def prometheus(shop: Shop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with Prometheus(tmp_path_factory.mktemp("prometheus"), shop.targets) as running:
        running.awaits(lambda: unlike(running.values("up", "job"), 1), "targets that do not answer")
        yield running


def unlike(values: dict[str, float], wanted: float) -> list[str]:
    return [name for name, value in values.items() if value != wanted] if values else ["all"]


def queries() -> list[tuple[str, str]]:
    """(panel, query) of every panel, with the dashboards' variables filled in as Grafana would."""
    found = []
    for path in DASHBOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel.get("targets", []):
                expr = target["expr"]
                for blank, value in FILLED_IN.items():
                    expr = expr.replace(blank, value)
                found.append((f"{path.stem}: {panel['title']}", expr))
    return found


def says_something(prometheus: Prometheus, expr: str) -> bool:
    return any(not math.isnan(float(series["value"][1])) for series in prometheus.query(expr))


def kill_at_work(shop: Shop, prometheus: Prometheus) -> None:
    """Ends a worker with -9 while it runs jobs, and after it has run many."""
    busy = (
        f'sum(rate(streamdq_job_attempts_total{{topic="{SLOW}",outcome="done"}}[3s])) > 10'
        f' and on () sum(streamdq_jobs{{topic="{SLOW}",state="running"}}) > 3'
    )
    prometheus.awaits(lambda: () if prometheus.query(busy) else "it is not", "the worker to be killed is busy")
    shop.kill("doomed")


def rightly_absent(prometheus: Prometheus, begun: float) -> set[str]:
    """The alert of absent figures, if the exporter did not answer or did not reach Redis in time since then: a busy
    machine may keep it from that for longer than the three seconds of this test.
    """
    span = f"[{math.ceil(time.monotonic() - begun)}s]"
    missed = f'min_over_time(up{{job="streamdq-exporter"}}{span}) < 1 or min_over_time(streamdq_up{span}) < 1'
    return {"StreamdqFiguresAbsent"} if prometheus.query(missed) else set()


def test_alerts_fire_and_every_panel_shows_something(shop: Shop, prometheus: Prometheus) -> None:
    begun = time.monotonic()
    kill_at_work(shop, prometheus)

    fired: set[str] = set()
    silent = queries()
    assert len(silent) > 80

    def still_silent() -> list[str]:
        fired.update(prometheus.firing())
        silent[:] = [(panel, expr) for panel, expr in silent if not says_something(prometheus, expr)]
        return [*sorted(EXPECTED - fired), *(f"{panel}: {expr}" for panel, expr in silent)]

    prometheus.awaits(still_silent, "alerts that do not fire, and panels without data")
    assert not fired & NEVER - rightly_absent(prometheus, begun)


def test_a_paused_topic_is_overdue_and_no_alert_tells(prometheus: Prometheus) -> None:
    overdue = f'streamdq_oldest_overdue_seconds{{topic="{HELD}"}} > 5'
    prometheus.awaits(lambda: () if prometheus.query(overdue) else "it is not", "the paused topic is overdue")
    assert prometheus.query(f'ALERTS{{topic="{HELD}"}}') == []


def test_alerts_name_what_they_are_about(prometheus: Prometheus) -> None:
    for alert, label, value in (("Failing", "topic", FAILING), ("TargetDown", "job", "streamdq-doomed")):
        firing = partial(prometheus.values, f'ALERTS{{alertname="Streamdq{alert}",alertstate="firing"}}', label)
        prometheus.awaits(lambda firing=firing: () if firing() else "it does not", "the alert fires")  # type: ignore[misc]
        assert set(firing()) <= {value}
