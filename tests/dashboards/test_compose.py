"""examples/compose: no container engine is needed to see that its parts fit together."""

import importlib.util
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from streamdq import Queue
from streamdq.cli import app as cli
from tests.dashboards.tools import needs_promtool
from tests.servers import Server

ROOT = Path(__file__).parents[2]
HERE = ROOT / "examples" / "compose"
COMPOSE: dict[str, Any] = yaml.safe_load((HERE / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
PRODUCTION = ROOT / "examples" / "production"
IN_PRODUCTION: dict[str, dict[str, Any]] = yaml.safe_load((PRODUCTION / "compose.yaml").read_text())["services"]


def mounted(service: str) -> dict[str, Path]:
    """{path in the container: path here}, of what is mounted from here."""
    volumes = [volume.split(":") for volume in SERVICES[service]["volumes"]]
    return {inside: (HERE / outside).resolve() for outside, inside, *_ in volumes if outside.startswith(".")}


def outside(service: str, path: str) -> Path:
    """Where a path in the container lies here."""
    for inside, here in mounted(service).items():
        if Path(path).is_relative_to(inside):
            return here / Path(path).relative_to(inside)
    raise AssertionError(f"{service} has no {path}")


def _has_compose() -> bool:
    docker = shutil.which("docker")
    return docker is not None and subprocess.run([docker, "compose", "version"], capture_output=True).returncode == 0


@pytest.mark.skipif(not _has_compose(), reason="docker compose is not installed")
def test_compose_takes_it() -> None:
    done = subprocess.run(["docker", "compose", "config", "--quiet"], cwd=HERE, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_is_mounted_is_there_and_nothing_is_open_to_others() -> None:
    for name, service in SERVICES.items():
        named = [volume.split(":")[0] for volume in service.get("volumes", []) if not volume.startswith(".")]
        assert set(named) <= set(COMPOSE["volumes"]), name
        if any(volume.startswith(".") for volume in service.get("volumes", [])):
            assert all(path.exists() for path in mounted(name).values()), name
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name
        needed = service.get("depends_on", {})
        assert set(needed) <= set(SERVICES), name
        assert ("image" in service) or ("build" in service), name
        assert ":latest" not in service["image"], name


def test_grafana_finds_the_dashboards_and_prometheus() -> None:
    provisioning = mounted("grafana")["/etc/grafana/provisioning"]
    (source,) = yaml.safe_load((provisioning / "datasources" / "prometheus.yaml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    assert source["type"] == "prometheus"
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "streamdq.yaml").read_text())["providers"]
    found = {path.name for path in outside("grafana", provider["options"]["path"]).glob("*.json")}
    assert found == {"overview.json", "topic.json", "coming-load.json"}
    assert outside("grafana", SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]).exists()


@needs_promtool
def test_prometheus_takes_its_configuration_with_the_rules(tmp_path: Path) -> None:
    config = yaml.safe_load(outside("prometheus", "/etc/prometheus/prometheus.yml").read_text())
    config["rule_files"] = [
        str(outside("prometheus", str(Path(rule).parent)) / Path(rule).name) for rule in config["rule_files"]
    ]
    here = tmp_path / "prometheus.yml"
    here.write_text(yaml.safe_dump(config))
    done = subprocess.run(["promtool", "check", "config", here], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 rule files found" in done.stdout
    assert "rules found" in done.stdout


def test_prometheus_asks_where_the_services_answer() -> None:
    config = yaml.safe_load(outside("prometheus", "/etc/prometheus/prometheus.yml").read_text())
    asked: dict[str, str] = {}
    for job in config["scrape_configs"]:
        assert "streamdq" in job["job_name"]
        for static in job.get("static_configs", []):
            asked |= dict(target.split(":") for target in static["targets"])
        for found in job.get("dns_sd_configs", []):
            asked |= {name: str(found["port"]) for name in found["names"]}
    assert set(asked) == {"exporter", "worker", "customers"}
    for service in ("exporter", "worker"):
        words = SERVICES[service]["command"].split()
        assert asked[service] in words
        assert "0.0.0.0" in words, "other containers could not reach it"
    assert asked["customers"] == str(module("customers").METRICS_PORT)


COMMANDS = {
    **{name: SERVICES[name]["command"] for name in ("worker", "exporter")},
    **{
        f"production {name}": service["command"]
        for name, service in IN_PRODUCTION.items()
        if str(service.get("command")).startswith("streamdq ")
    },
}


@pytest.mark.parametrize("service", COMMANDS)
def test_the_commands_know_their_options(service: str, capsys: pytest.CaptureFixture[str]) -> None:
    program, command, *words = COMMANDS[service].split()
    assert program == "streamdq"
    assert cli.run([command, "--help"]) == 0
    explained = capsys.readouterr().out
    assert all(word in explained for word in words if word.startswith("--"))


def test_prometheus_in_production_asks_where_the_services_answer() -> None:
    config = yaml.safe_load((PRODUCTION / "prometheus.yml").read_text())
    asked = [target.split(":") for job in config["scrape_configs"] for target in _targets(job)]
    assert {service for service, _ in asked} == {"exporter", "worker", "callback"}
    for service, port in asked:
        assert {port, "0.0.0.0"} <= set(IN_PRODUCTION[service]["command"].split())


def _targets(job: dict[str, Any]) -> list[str]:
    static = [target for one in job.get("static_configs", []) for target in one["targets"]]
    return static + [f"{name}:{one['port']}" for one in job.get("dns_sd_configs", []) for name in one["names"]]


def test_in_production_only_nginx_is_open_and_the_page_shares_its_network() -> None:
    """Else others could name a user in the proxy's headers."""
    opened = {name: service["ports"] for name, service in IN_PRODUCTION.items() if "ports" in service}
    assert opened == {"nginx": ["443:443"], "grafana": ["127.0.0.1:3000:3000"]}
    for name in ("page", "oauth2-proxy"):
        assert IN_PRODUCTION[name]["network_mode"] == "service:nginx"
    assert "--host" not in IN_PRODUCTION["page"]["command"]
    assert IN_PRODUCTION["page"]["environment"]["STREAMDQ_HTTP_SSO_PROXIES"] == "127.0.0.1"
    assert "streamdq serve" in (ROOT / "examples/nginx/sso.conf").read_text().splitlines()[0]


def test_the_image_is_made_of_what_is_there() -> None:
    dockerfile = (HERE / "Dockerfile").read_text().splitlines()
    allowed = [line[1:] for line in (HERE / "Dockerfile.dockerignore").read_text().splitlines() if line[:1] == "!"]
    for line in dockerfile:
        if line.startswith("COPY "):
            for source in line.split()[1:-1]:
                assert (ROOT / source).exists(), source
                assert any(Path(source).match(pattern) for pattern in allowed), f"{source} is ignored"


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


@pytest.fixture
def queue(newest: Server) -> Iterator[Queue]:
    with Queue(newest.url) as opened:
        yield opened


def test_customers_enqueue_what_the_shop_handles(queue: Queue) -> None:
    customers, shop = module("customers"), module("shop")
    chance = random.Random(1)
    for number in range(1000, 1300):
        customers.order(queue, number, chance)
    stats = queue.stats()
    assert set(stats.topics) == shop.worker.topics
    assert stats.topics["payment.notify"].enqueued > 50
    assert stats.topics["order.close"].groups["default"].cancelled > 50
