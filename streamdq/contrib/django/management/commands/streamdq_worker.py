"""``python manage.py streamdq_worker``: what ``streamdq worker`` does, with the project's settings."""

from __future__ import annotations

import os
import sys
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from streamdq.cli.app import run

_OPTIONS = {
    "processes": "How many processes; a dead one is restarted [1].",
    "concurrency": "Handlers at once, per process.",
    "log-level": "debug, info, warning or error [info].",
    "metrics-port": "Serve metrics here.",
}


class Command(BaseCommand):  # type: ignore[misc] # Django has no types
    help = "Runs a streamdq worker until SIGTERM or Ctrl-C, and then lets running handlers finish."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "worker", nargs="?", metavar="MODULE:WORKER", help="Such as shop.jobs:worker [settings.STREAMDQ_WORKER]."
        )
        for name, text in _OPTIONS.items():
            parser.add_argument(f"--{name}", help=text)
        parser.add_argument("--burst", action="store_true", help="Exit when no job is ready, running or delayed.")

    def handle(self, *_: Any, **options: Any) -> None:
        os.environ |= _environment(options["worker"])
        arguments = ["worker", "streamdq.contrib.django.project:worker"]
        if namespace := getattr(settings, "STREAMDQ_NAMESPACE", None):
            arguments = ["--namespace", namespace, *arguments]
        for name in _OPTIONS:
            value = options[name.replace("-", "_")]
            arguments += [] if value is None else [f"--{name}={value}"]
        arguments += ["--burst"] if options["burst"] else []
        if code := run(arguments):
            sys.exit(code)


def _environment(target: str | None) -> dict[str, str]:
    """What this process and those that it starts need to find the worker and Redis. The URL is not an option, because
    everybody on the machine sees those of a process, and it may have a password.
    """
    target = target or getattr(settings, "STREAMDQ_WORKER", None)
    if not target:
        raise CommandError("which worker? Set STREAMDQ_WORKER = 'shop.jobs:worker' in the settings, or name it here")
    found = {"STREAMDQ_WORKER": target, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    if url := getattr(settings, "STREAMDQ_URL", None):
        found["STREAMDQ_URL"] = url
    return found
