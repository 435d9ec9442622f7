"""``python -m tests.deploy.images``: builds the Dockerfiles of deploy, docs/deploying.md and examples/compose, and runs
each command that keeps running in their images: as their user, with a read-only root and no capabilities. As root.

There need not be a registry: the base is made of Debian's packages (``debootstrap``) and built upon with ``buildah``;
``--base IMAGE`` takes another. There need not be a container engine either: what runs is the image's file system, in a
mount namespace, with the image's user, variables and folder.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from streamdq import Queue
from tests.docs.reader import ROOT, blocks, is_ready
from tests.servers import Server, binaries
from tests.waiting import until

WORK = ROOT / "build" / "images"
BASE = "localhost/streamdq-base"
PROGRAMS = {"buildah": "buildah", "debootstrap": "debootstrap", "unshare": "util-linux", "ip": "iproute2"}
INSIDE = "STREAMDQ_IMAGES_INSIDE"
AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"
JOBS = """\
from streamdq import Worker

worker = Worker()


@worker.handler("order.close")
async def close(order: dict) -> None: ...
"""
EXTRAS = "cli,uvloop"
WORKER = "streamdq worker shop.jobs:worker --processes 2 --metrics-port 9102"
GOING = [
    "streamdq mover",
    "streamdq exporter",
    "streamdq serve",
    "streamdq callback --topic notify",
    "streamdq dump --out /tmp/history --follow",
    "streamdq archive --to sqlite:////tmp/dead.db --follow",
]
SERVED = {"exporter": "9422/metrics", "serve": "8080/health/ready", "--metrics-port 9102": "9102/metrics"}


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def carry_out(*words: str | Path, cwd: Path = ROOT) -> str:
    done = subprocess.run([str(word) for word in words], cwd=cwd, capture_output=True, text=True, timeout=900)
    if done.returncode:
        sys.stderr.write(done.stdout[-4000:] + done.stderr[-4000:])
        raise SystemExit(f"failed: {shlex.join(map(str, words))}")
    return done.stdout.strip()


# -- building


def buildah(*words: str | Path) -> str:
    store = ("--root", WORK / "store", "--runroot", WORK / "run", "--storage-driver", "vfs")
    return carry_out("buildah", *store, *words)


def make_base() -> str:
    """A base like python:slim, of Debian's packages."""
    if buildah("images", "--quiet", "--filter", f"reference={BASE}"):
        return BASE
    root = WORK / "root"
    shutil.rmtree(root, ignore_errors=True)
    packages = "python3,python3-venv,python3-pip,ca-certificates"
    carry_out("debootstrap", "--variant=minbase", f"--include={packages}", _suite(), root)
    if Path(AUTHORITIES).exists():  # of this machine, whose package index may have one of its own
        shutil.copy(AUTHORITIES, root / AUTHORITIES.removeprefix("/"))
    (root / "usr/bin/python").symlink_to("python3")
    made = buildah("from", "scratch")
    buildah("copy", "--quiet", made, root, "/")
    variables = {"PIP_BREAK_SYSTEM_PACKAGES": "1", "PIP_CERT": AUTHORITIES, "PATH": "/usr/local/bin:/usr/bin:/bin"}
    buildah("config", *(word for name, value in variables.items() for word in ("--env", f"{name}={value}")), made)
    buildah("commit", "--quiet", "--rm", made, BASE)
    shutil.rmtree(root)
    return BASE


def _suite() -> str:
    """Debian's release: that of this machine, or else the current one."""
    reported = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    return reported["VERSION_CODENAME"] if reported.get("ID") == "debian" else "stable"


def build(name: str, base: str, dockerfile: Path, context: Path, *options: str) -> None:
    how = ("--isolation", "chroot", "--network", "host", "--build-arg", f"BASE={base}", *options)
    buildah("build", "--quiet", *how, "--file", dockerfile, "--tag", f"localhost/{name}", context)
    say(f"built {name}")


def build_printed(base: str, folder: Path) -> None:
    """The Dockerfile of docs/deploying.md, with requirements that name this checkout."""
    (text,) = (block.text for block in blocks(ROOT / "docs/deploying.md") if block.language == "dockerfile")
    wheels = folder / "wheels"
    carry_out(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", wheels, ROOT)
    (wheel,) = wheels.iterdir()
    context = folder / "shop"
    (context / "shop").mkdir(parents=True)
    (context / "shop/jobs.py").write_text(JOBS)
    (context / "requirements.txt").write_text(f"streamdq[{EXTRAS}] @ file:///wheels/{wheel.name}\n")
    (context / "Dockerfile").write_text(text)
    build("streamdq-shop", base, context / "Dockerfile", context, "--volume", f"{wheels}:/wheels:ro")


# -- running


@dataclass(frozen=True)
class Image:
    """Its file system, and how it says that commands run."""

    root: Path
    config: dict[str, Any]

    @property
    def command(self) -> list[str]:
        return list(self.config.get("Cmd") or [])

    def words(self, command: Sequence[str], url: str, tmp: bool) -> list[str]:
        root, user = shlex.quote(str(self.root)), shlex.quote(self.config["User"])
        mounts = [f"mount --bind {root} {root}", f"mount -o remount,bind,ro {root}", f"mount --rbind /dev {root}/dev"]
        mounts += [f"mount -t proc proc {root}/proc"] + ([f"mount -t tmpfs tmpfs {root}/tmp"] if tmp else [])
        variables = [*(self.config.get("Env") or []), f"STREAMDQ_URL={url}", "HOME=/nonexistent"]
        drop = f"setpriv --reuid={user} --regid=nogroup --clear-groups --bounding-set=-all --no-new-privs"
        start = f"cd {shlex.quote(self.config['WorkingDir'])} && exec {shlex.join(command)}"
        inside = f"exec chroot {root} env -i {shlex.join(variables)} {drop} sh -c {shlex.quote(start)}"
        return ["unshare", "--mount", "sh", "-ec", "\n".join([*mounts, inside])]


@contextmanager
def opened(name: str) -> Iterator[Image]:
    reported = json.loads(buildah("inspect", "--type", "image", f"localhost/{name}"))
    container = buildah("from", "--pull-never", f"localhost/{name}")
    try:
        yield Image(Path(buildah("mount", container)), reported["Docker"]["config"])
    finally:
        buildah("rm", container)


def run_going(image: Image, line: str, url: str, *, tmp: bool = True, done: Callable[[], bool] = lambda: True) -> None:
    """Starts a command that keeps running; it answers, can do nothing, does its work, and ends well on SIGTERM."""
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(image.words(shlex.split(line), url, tmp), stdout=log, stderr=log)
        out = Path(f"/proc/self/fd/{log.fileno()}")
        try:
            until(lambda: _goes(process) and is_ready(line, process.pid, out), f"{line} is ready", 60)
            status = Path(f"/proc/{process.pid}/status").read_text()
            for expected in ("Uid:\t65534\t65534", "CapEff:\t0000000000000000", "NoNewPrivs:\t1"):
                assert expected in status, (line, expected)
            for part, address in SERVED.items():
                if part in line:
                    until(lambda address=address: _answers(address), f"{address} answers", 30)  # type: ignore[misc]
            until(done, f"{line} has done its work", 60)
            process.send_signal(signal.SIGTERM)
            assert process.wait(40) == 0, line
        except BaseException:
            sys.stderr.write(out.read_text()[-3000:])
            raise
        finally:
            process.kill()
            process.wait()


def _goes(process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, f"it ended with {process.returncode}"
    return True


def _answers(address: str) -> bool:
    with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{address}", timeout=5) as reply:
        return bool(reply.status == 200)
    return False


def once(image: Image, line: str, url: str) -> subprocess.CompletedProcess[str]:
    words = image.words(shlex.split(line), url, True)
    return subprocess.run(words, capture_output=True, text=True, timeout=120)


def run_shop(url: str) -> None:
    with opened("streamdq-shop") as image, Queue(url) as queue:
        assert once(image, "touch /app/written", url).returncode != 0, "the root is read-only"
        command = shlex.join(image.command)
        for number, tmp in enumerate((True, False), start=1):
            queue.enqueue("order.close", {"order_id": 42})
            run_going(image, command, url, tmp=tmp, done=partial(_has_done, queue, number))
        say(f"ran {command}, which did a job; also without a /tmp to write to")
        run_going(image, WORKER, url)
        say(f"ran {WORKER}")


def run_commands(url: str) -> None:
    """The commands that need no code of the user's, in the image for them."""
    with opened("streamdq") as image:
        for line in GOING:
            run_going(image, line, url)
            say(f"ran {line}")
        relay = "sqlite:////tmp/shop.db"
        both = f"streamdq outbox create --from {relay} && exec streamdq outbox relay --from {relay}"
        run_going(image, shlex.join(["sh", "-c", both]), url)
        say(f"ran streamdq outbox relay --from {relay}")
        assert "balanced" in once(image, "streamdq audit", url).stdout


def _has_done(queue: Queue, jobs: int) -> bool:
    groups = queue.stats("order.close").topics["order.close"].groups
    return "default" in groups and groups["default"].done == jobs


def run_example(url: str) -> None:
    import yaml

    services = yaml.safe_load((ROOT / "examples/compose/compose.yaml").read_text())["services"]
    with opened("streamdq-example") as image:
        for name in ("worker", "exporter"):
            run_going(image, services[name]["command"], url)
            say(f"ran {services[name]['command']} of examples/compose")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.deploy.images", description=__doc__)
    parser.add_argument("--base", help="an image with Python to build on, instead of one of Debian's packages")
    options = parser.parse_args()
    missing = [package for program, package in PROGRAMS.items() if shutil.which(program) is None]
    if missing or os.geteuid():
        say(f"needs root and {', '.join(PROGRAMS.values())}")
        return 2
    if INSIDE in os.environ:  # a network of its own, in which the ports that the commands name are free
        with Server(binaries()[-1], appendonly=True) as server:
            run_shop(server.url)
            run_commands(server.url)
            run_example(server.url)
        return 0
    WORK.mkdir(parents=True, exist_ok=True)
    base = options.base or make_base()
    with tempfile.TemporaryDirectory() as folder:
        build_printed(base, Path(folder))
    for name, dockerfile in (("streamdq", "deploy/Dockerfile"), ("streamdq-example", "examples/compose/Dockerfile")):
        build(name, base, ROOT / dockerfile, ROOT, f"--ignorefile={ROOT / dockerfile}.dockerignore")
    inside = f"ip link set lo up && exec {shlex.quote(sys.executable)} -m tests.deploy.images"
    words = ["unshare", "--net", "sh", "-c", inside]
    return subprocess.run(words, cwd=ROOT, env={**os.environ, INSIDE: "1"}).returncode


if __name__ == "__main__":
    sys.exit(main())
