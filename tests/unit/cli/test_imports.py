"""A call imports what its command needs: counted in modules, as time would depend on the machine."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import typer

from streamdq import extensions
from streamdq.cli.app import application
from streamdq.cli.root import PARTS, SECTIONS
from tests.servers import Server
from tests.turns import others_later
from tests.waiting import HANG_S

SHOW = "import sys; from streamdq.cli import app; print(app.run(sys.argv[1:]), *sys.modules, file=sys.stderr)"
HEAVY = (
    "aiohttp", "cronsim", "http.server", "jinja2", "pandas", "prometheus_client", "pyarrow", "pyspark", "sqlalchemy",
    "starlette", "structlog", "uvicorn", "uvloop", "streamdq.archive", "streamdq.demo", "streamdq.dump",
    "streamdq.exporter", "streamdq.http", "streamdq.mover.mover", "streamdq.outbox", "streamdq.worker.worker",
)  # fmt: skip
OF_HELP = ("cronsim", "streamdq.archive", "streamdq.demo", "streamdq.dump")
"""The modules of all commands, which help shows, need these."""
CALLS = [("--help",), ("--version",), ("stats", "--json"), ("enqueue", "t", "1", "--id", "a", "--delay", "1h")]


@pytest.mark.parametrize("call", others_later(CALLS, CALLS[3]), ids=lambda call: call[0])
def test_it_does_not_import_what_it_does_not_need(newest: Server, call: tuple[str, ...]) -> None:
    command = [sys.executable, "-c", SHOW, "--url", newest.url, *call]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=HANG_S)
    code, *modules = done.stderr.splitlines()[-1].split()
    assert code == "0"
    allowed = OF_HELP if call == ("--help",) else ()
    assert sorted((set(HEAVY) & set(modules)) - set(allowed)) == []
    assert len([name for name in modules if name.startswith("streamdq")]) < (201 if allowed else 123)


def test_each_command_is_in_its_module() -> None:
    for part, names in PARTS.items():
        made = application(names[0])
        groups = [group.typer_instance for group in made.registered_groups]
        commands = {
            one.name or one.callback.__name__  # type: ignore[union-attr]
            for group in groups
            if group is not None
            for one in group.registered_commands
        } | {one.name for group in groups if group is not None for one in group.registered_groups}
        assert commands == set(names), part
    always = sorted(name for names in SECTIONS.values() for name in names)
    assert sorted(name for names in PARTS.values() for name in names) == always


def test_each_optional_command_is_in_its_module() -> None:
    found = list(extensions.found(extensions.COMMANDS))
    assert {"outbox", "analyze", "serve"} <= {extension.name for extension in found}
    for extension in found:
        root: Any = typer.main.get_command(application(extension.name))
        assert extension.name in root.commands
        assert isinstance(root.commands[extension.name].rich_help_panel, str), extension.name
