"""What the pages of docs/ show runs as it stands there; what can't run here can at least be read."""

from __future__ import annotations

import ast
import configparser
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from streamdq.cli.app import app
from tests.cases import each
from tests.docs.reader import ROOT, Block, Reader, blocks, commands, pages
from tests.forked import Forked
from tests.servers import Server
from tests.turns import others_later
from tests.waiting import HANG_S, until

DOCS = ROOT / "docs"
PRINTED = {
    "abort": ["None\ncancelled"],
    "archive": [],
    "bodies": [],
    "body-versions": [],
    "flows": [],
    "results": [],
    "find": ["31", "Acted(done=31, changed=0, gone=0, refused=0)"],
    "handlers": [
        "closing order 42, attempt 1",
        "page 1, ",
        "told the merchant at attempt 3",
        "payment checked at attempt 2",
        "gave up payment.check: the bank refused",
        "shipping order 7",
    ],
    "history": ["Compacted("],
    "http": [],
    "index": ["closing order 42"],
    "priorities": ["low"],
    "keys": ["merchant-7", "KeyLoad(key='merchant-7', waiting=9, running=0, paused=False)"],
    "large-bodies": [],
    "personal-data": ["1 True"],
    "pipelines": [],
    "reliability": [],
    "sso": [],
    "schedules": ["acme 0 9 * * 1-5 active ["],
    "uniqueness": ["enqueued\ninvoice-42 is already there"],
}
"""Pages whose Python is one program, and what it prints."""

BEFORE = {
    "archive": 'from streamdq import Queue as _Queue\n_Queue().configure("order.close", groups=["default"])\n',
    "sso": 'import os\nos.environ["SESSION_SECRET"] = "unused"\n',
    "reliability": 'from streamdq import Queue\nqueue = Queue("memory://")\n',
}
"""What a page takes for granted."""

FOLLOWED = {
    "tutorial": ["order 42 was not paid in time: closed", "order 43 was", "attempt 3: calling", "nightly", "balanced"],
    "fastapi": ['"in_time":true', "1 passed"],
    "django": ['{"order": 1}'],
    "flask": ['"in_time":true', "1 passed"],
    "idempotency": ["(10,)"],
    "testing": ["5 passed"],
    "local-development": ["closed order 42", "ValueError: there is no order -1", "closed order 43", "2 passed"],
    "tracing": ['"name": "process order.remind"', '"streamdq_job_attempts"', "'order.ship dead': 2"],
    "migrating/celery": ["1 1"],
    "migrating/rq": ["\n1\n"],
    "migrating/arq": ["corner 1"],
    "migrating/bullmq": ["\n1 1\n"],
    "migrating/dramatiq": ["\n1\n"],
}
"""Pages whose files are written and whose commands are typed, and what can be seen then."""

ELSEWHERE = {
    "README": "tests/redis/test_readme.py",
    "analytics": "tests/spark/test_command.py",
    "callbacks": "tests/callback/test_example.py",
    "cpu-bound": "tests/redis/test_process_handlers.py",
    "managed": "tests/redis/test_credentials.py",
    "extending": "tests/unit/test_extensions.py",
    "outbox": "tests/outbox/test_docs.py",
    "reference/protocol": "tests/clients/test_protocol.py",
    "tour": "tests/redis/test_readme.py",
}
"""Pages with Python that other tests run, or whose examples other tests run in full."""


def page(name: str) -> Path:
    return DOCS / f"{name}.md"


def name_of(path: Path) -> str:
    return str(path.relative_to(DOCS if DOCS in path.parents else ROOT).with_suffix(""))


def in_languages(*languages: str) -> list[Block]:
    return [block for _, block in all_blocks() if block.language in languages]


def all_blocks() -> Iterator[tuple[str, Block]]:
    for path in pages():
        for block in blocks(path):
            yield name_of(path), block


def test_each_page_with_python_is_run_by_a_test() -> None:
    shown = {name for name, block in all_blocks() if block.language == "python"}
    assert shown == PRINTED.keys() | FOLLOWED.keys() | ELSEWHERE.keys()
    assert all((ROOT / file).is_file() for file in ELSEWHERE.values())


@pytest.mark.parametrize(
    "name", others_later(PRINTED, "index", "handlers", "flows", "results", "find", "keys", "schedules", "uniqueness")
)
def test_a_page_runs_as_it_stands(name: str, redis_server: Server, tmp_path: Path) -> None:
    code = "\n".join(block.text for block in blocks(page(name)) if block.language == "python")
    for theirs, ours in {
        "s3://bucket": f"file://{tmp_path}", "redis://localhost:6379/0": redis_server.url,
        "redis://localhost": redis_server.url, "/var/lib/streamdq/history": str(tmp_path / "history"),
        '"DIR"': f'"{tmp_path}/history"',
    }.items():  # fmt: skip
        code = code.replace(theirs, ours)
    (tmp_path / "page.py").write_text(BEFORE.get(name, "") + code)
    with Forked(
        "page", cwd=tmp_path, env={**os.environ, "STREAMDQ_URL": redis_server.url},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        printed, said = process.communicate(timeout=HANG_S)
    assert process.returncode == 0, said
    for line in PRINTED[name]:
        assert line in printed


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl on this machine")
@pytest.mark.parametrize("name", others_later(FOLLOWED, "idempotency"))
def test_a_reader_can_follow_a_page(name: str, redis_server: Server, tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").touch()
    reader = Reader(tmp_path, redis_server.url)
    try:
        reader.follow(page(name))
        if name == "testing":  # it names the file, not the command
            reader.type(f"python -m pytest -q {plugin()} test_orders.py test_signup.py test_jobs.py test_shop.py")
        for text in FOLLOWED[name]:
            until(partial(reader.sees, text), f"{text!r} is seen")
        if name == "django":  # the job closes the order
            code = "from shop.models import Order; print(Order.objects.get().state)"
            until(lambda: closed(reader, f"python -c 'import django; django.setup(); {code}'"), "it is closed")
    finally:
        if sys.exc_info()[0] is not None:
            sys.stderr.write(reader.seen)
            reader.kill()
    reader.stop()


def plugin() -> str:
    """What makes pytest load the plugin where the package was installed before it had one."""
    installed = any(one.value == "streamdq.pytest_plugin" for one in entry_points(group="pytest11"))
    return "" if installed else "-p streamdq.pytest_plugin"


def closed(reader: Reader, command: str) -> bool:
    reader.type(command)
    return reader.said.endswith("closed\n")


# -- what can't run can be read


@each("block", lambda: in_languages("python"))
def test_python_is_valid(block: Block) -> None:
    """Within a function: some show what belongs in one."""
    ast.parse("async def page():\n" + textwrap.indent(block.text.replace("from __future__", "from future"), "    "))


READ: Mapping[str, Callable[[str], Iterable[Any]]] = {
    "yaml": yaml.safe_load_all,
    "toml": tomllib.loads,
    "json": json.loads,
}


@each("block", lambda: in_languages(*READ, "ini"))
def test_a_file_can_be_read(block: Block) -> None:
    if block.language == "ini":
        parser = configparser.ConfigParser(interpolation=None, strict=True)
        parser.read_string(block.text)
        assert parser.sections()
    else:
        assert [*READ[block.language](block.text)]


@pytest.mark.skipif(shutil.which("node") is None, reason="no Node.js on this machine")
def test_javascript_is_valid(tmp_path: Path) -> None:
    scripts = [block.text for _, block in all_blocks() if block.language == "js"]
    assert scripts
    for i, text in enumerate(scripts):
        (tmp_path / f"{i}.mjs").write_text(text)
        subprocess.run(["node", "--check", f"{i}.mjs"], cwd=tmp_path, check=True, timeout=HANG_S)


def test_kubernetes_objects_fit_together() -> None:
    """Labels match, ports that probes name exist, and the grace is shorter than Kubernetes'."""
    texts = [block.text for block in blocks(page("kubernetes")) if block.language == "yaml"]
    objects = [one for text in texts for one in yaml.safe_load_all(text)]
    deployments = [one["spec"] for one in objects if one.get("kind") == "Deployment"]
    assert len(deployments) == 3
    for spec in deployments:
        assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
        pod = spec["template"]["spec"]
        (container,) = pod["containers"]
        check_command(container["args"])
        ports = {port["name"] for port in container["ports"]}
        assert all(container[probe]["httpGet"]["port"] in ports for probe in container if probe.endswith("Probe"))
        env = {one["name"]: one.get("value") for one in container["env"]}
        assert float(env.get("STREAMDQ_GRACE_S") or 10) < pod.get("terminationGracePeriodSeconds", 30)
        mounted = {one["name"] for one in container.get("volumeMounts", ())}
        assert mounted == {one["name"] for one in pod.get("volumes", ())}


# -- commands


COMMAND: Any = typer.main.get_command(app)
_SHELL = re.compile(r"\s(?:[|<>;&]|2>|\d?>&).*$")


def check_command(words: list[str]) -> None:
    """The command exists, and takes these options; it is not run."""
    assert words[0] == "streamdq"
    command, words, parent = COMMAND, words[1:], None
    while True:
        context = command.make_context(command.name or "streamdq", list(words), parent=parent)
        if not hasattr(command, "commands"):
            return
        rest = [*context._protected_args, *context.args]
        if not rest:
            assert command.invoke_without_command, words
            return
        _, command, words = command.resolve_command(context, rest)
        parent = context


def typed() -> list[str]:
    """Every command of streamdq in a block."""
    return [
        command.line
        for _, block in all_blocks()
        if block.language == "console"
        for command in commands(block)
        if command.line.startswith("streamdq ")
    ]


def test_there_are_commands_to_check() -> None:
    assert len(typed()) > 60


@each("line", typed)
def test_a_command_exists_with_its_options(line: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STREAMDQ_OUTBOX", "sqlite://")  # which the page of the outbox tells to set
    check_command(shlex.split(_SHELL.sub("", line.removesuffix("&").strip())))


def test_extras_that_pages_install_exist() -> None:
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {
        extra
        for path in pages()
        for found in re.findall(r"streamdq\[([\w,]+)\]", path.read_text())
        for extra in found.split(",")
    }
    assert len(named) > 8
    assert named <= known.keys()
