"""The Helm chart, rendered by Helm itself; each object against Kubernetes' schemas, each command against the CLI."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import typer.main
import yaml
from kubernetes_validate import validate

from streamdq import AsyncQueue, NewJob, Queue
from streamdq.cli.app import app
from streamdq.http import create_app
from tests.servers import Server
from tests.waiting import HANG_S

CHART = Path(__file__).parents[2] / "deploy" / "helm" / "streamdq"
HELM = shutil.which("helm", path=str(Path(sys.executable).parent))
TOKEN = "viewer-token-of-thirty-two-chars"
ALL = """
image: { repository: registry.example/shop, tag: "1.4.2" }
redis: { existingSecret: streamdq-redis }
env: { STREAMDQ_CODEC: zstd }
graceSeconds: 45
workers:
  - { name: orders, target: "shop.jobs:orders", keda: { enabled: true, topic: order.close, minReplicas: 0 } }
  - { name: mail, target: "shop.jobs:mail", replicas: 3, concurrency: 20, args: [--weight, pay=10] }
callback: { enabled: true }
mover: { enabled: true }
serve: { enabled: true, tokensSecret: tokens, kedaTokenSecret: keda }
metrics: { podMonitor: true }
networkPolicy: { enabled: true, from: [{ podSelector: {} }] }
"""
LEAST = """
image: { repository: shop, tag: "1" }
redis: { url: redis://redis }
workers: [{ name: worker, target: "shop:worker" }]
"""


def helm(*arguments: str, values: str) -> subprocess.CompletedProcess[str]:
    assert HELM is not None
    return subprocess.run(
        [HELM, *arguments, "-f", "-"], input=values, capture_output=True, text=True, timeout=HANG_S, check=False
    )


def rendered(values: str) -> list[dict[str, Any]]:
    done = helm("template", "shop", str(CHART), "--namespace", "shops", values=values)
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def named(objects: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    return {one["metadata"]["name"]: one for one in objects if one["kind"] == kind}


def pod_of(deployment: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return found


@pytest.mark.parametrize("values", [ALL, LEAST])
def test_helm_finds_nothing_to_complain_of(values: str) -> None:
    done = helm("lint", "--strict", str(CHART), values=values)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("values", [ALL, LEAST])
def test_every_object_is_one_that_kubernetes_takes(values: str) -> None:
    ours = [
        one for one in rendered(values) if one["apiVersion"].split("/")[0] not in ("keda.sh", "monitoring.coreos.com")
    ]
    assert len(ours) >= 4
    for one in ours:
        validate(one, "1.33", strict=True)


def test_each_deployment_runs_a_command_that_exists() -> None:
    commands = typer.main.get_command(app)
    deployments = named(rendered(ALL), "Deployment")
    assert deployments.keys() == {
        f"shop-{name}" for name in ("orders", "mail", "callback", "mover", "serve", "exporter")
    }
    for deployment in deployments.values():
        (container,) = pod_of(deployment)["containers"]
        program, command, *arguments = container["args"]
        assert program == "streamdq"
        commands.commands[command].make_context(command, arguments)  # type: ignore[attr-defined]


def test_pods_drain_and_are_hardened() -> None:
    for deployment in named(rendered(ALL), "Deployment").values():
        pod = pod_of(deployment)
        (container,) = pod["containers"]
        environment = {one["name"]: one.get("value") for one in container["env"]}
        assert pod["terminationGracePeriodSeconds"] > float(environment["STREAMDQ_GRACE_S"])
        assert environment["STREAMDQ_CODEC"] == "zstd"
        assert pod["securityContext"]["runAsNonRoot"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
        }  # fmt: skip


def test_budgets_select_the_pods_of_their_deployment() -> None:
    objects = rendered(ALL)
    deployments = named(objects, "Deployment")
    budgets = named(objects, "PodDisruptionBudget")
    assert budgets.keys() == deployments.keys() - {"shop-exporter"}
    for name, budget in budgets.items():
        assert budget["spec"]["selector"] == deployments[name]["spec"]["selector"]


async def test_keda_asks_for_what_the_server_answers(redis_server: Server) -> None:
    objects = rendered(ALL)
    (scaled,) = named(objects, "ScaledObject").values()
    (trigger,) = scaled["spec"]["triggers"]
    assert "replicas" not in named(objects, "Deployment")["shop-orders"]["spec"], "KEDA sets it"
    url = urlsplit(trigger["metadata"]["url"])
    assert (url.hostname, url.port) == (
        "shop-serve.shops.svc",
        named(objects, "Service")["shop-serve"]["spec"]["ports"][0]["port"],
    )
    with Queue(redis_server.url) as queue:
        queue.enqueue_many("order.close", [NewJob(1, delay="4m") for _ in range(100)])
    async with AsyncQueue(redis_server.url) as served:
        transport = httpx.ASGITransport(create_app(queue=served, authentication="mine"))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            answer = await client.get(f"{url.path}?{url.query}")
    assert answer.status_code == 200, answer.text
    assert answer.json()[trigger["metadata"]["valueLocation"]] == 1


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (LEAST.replace("redis: { url: redis://redis }", ""), "where Redis is"),
        (LEAST.replace('"shop:worker"', "shop"), "target"),
        (LEAST.replace('"shop:worker" }', '"shop:worker", keda: { enabled: true, topic: t } }'), "serve.enabled"),
        (ALL.replace("mover: { enabled: true }", ""), "without a mover"),
        (ALL.replace("topic: order.close, ", ""), "keda.topic"),
        (ALL.replace("tokensSecret: tokens, ", ""), "tokensSecret"),
    ],
)
def test_values_that_can_not_work_are_refused(values: str, message: str) -> None:
    done = helm("template", "shop", str(CHART), values=values)
    assert done.returncode != 0
    assert message in done.stderr
