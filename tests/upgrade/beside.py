"""Two versions side by side under load on one Redis: ``make test-upgrade``.

FROM is a wheel, a tag or a commit; without it, the last release. Its version serves alone, then beside this one, while
movers of both are killed. Then this one serves alone, and then the older one again, as after a rollback. In the end
every job that was accepted has run, as often as it should, and both versions' audits balance.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from streamdq import Queue
from streamdq.job.job import FLOWS
from streamdq.keys import NamespaceKeys
from tests.crash.table import say
from tests.packaging.versions import ROOT, uv
from tests.servers import Server, binaries
from tests.upgrade.side import RESULTS, SHARDS, TOPICS
from tests.waiting import until

SIDE = Path(__file__).with_name("side.py")


@dataclass(frozen=True)
class Line:
    """One line of the journal."""

    what: str
    topic: str
    id: str
    pid: int
    at_ms: float
    more: Sequence[Any] = ()

    @property
    def job(self) -> tuple[str, str]:
        return self.topic, self.id


@dataclass
class Version:
    """One version, and its processes."""

    name: str
    python: Path
    pids: set[int] = field(default_factory=set)
    killed: set[int] = field(default_factory=set)


def _serves(log: Path) -> bool:
    return "worker started" in log.read_text()


class Run:
    """The processes of a run, and what they wrote."""

    def __init__(self, server: Server, folder: Path, jobs: int) -> None:
        self.server = server
        self._jobs = jobs
        self.journal = folder / "journal"
        self.journal.touch()
        self._folder = folder
        self._running: dict[subprocess.Popen[bytes], Version] = {}
        self.queue = Queue(server.url)

    def start(self, version: Version, *roles: str) -> None:
        for role in roles:
            log = self._folder / f"{version.name}-{role}-{len(version.pids)}.log"
            with log.open("wb") as output:
                process = subprocess.Popen(
                    [version.python, SIDE, role, self.server.url, self.journal],
                    stdout=output, stderr=output, cwd=self._folder, env={**os.environ, "STREAMDQ_GRACE_S": "5"},
                )  # fmt: skip
            self._running[process] = version
            version.pids.add(process.pid)
            if role == "work":
                until(partial(_serves, log), "it serves")

    def _another_moves(self, pid: int) -> bool:
        return self._mover() not in (0, pid)

    def stop(self, version: Version | None = None) -> None:
        """Its processes end what they have begun."""
        stopped = [process for process, of in self._running.items() if version in (None, of)]
        for process in stopped:
            process.send_signal(signal.SIGTERM)
        for process in stopped:
            code = process.wait(60)
            assert code == 0, self.logs()
            del self._running[process]

    def kill_movers(self, *versions: Version) -> None:
        """One after the other, until each version has lost one; another process of the version takes its place."""
        while not all(version.killed for version in versions):
            until(self._mover, "a mover works")
            pid = self._mover()
            for process, version in list(self._running.items()):
                if process.pid == pid:
                    process.kill()
                    process.wait()
                    version.killed.add(pid)
                    del self._running[process]
                    self.start(version, "work")
            until(partial(self._another_moves, pid), "another mover works")
            self.go_on(*versions)

    def _mover(self) -> int:
        with self.server.client() as client:
            name = client.get(NamespaceKeys("streamdq").mover)
        return int(name.decode().rsplit("-", 2)[1]) if name else 0

    def lines(self) -> list[Line]:
        text = self.journal.read_text()
        read = (json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines())
        return [Line(what, topic, id, pid, at_ms, more) for what, topic, id, pid, at_ms, *more in read]

    def ended(self, version: Version) -> int:
        return sum(line.what == "end" and line.pid in version.pids for line in self.lines())

    def go_on(self, *versions: Version) -> None:
        before = [self.ended(version) for version in versions]
        until(
            lambda: all(self.ended(version) >= had + self._jobs for version, had in zip(versions, before, strict=True)),
            f"{self._jobs} more jobs end by each of {[version.name for version in versions]}",
        )

    def drained(self) -> bool:
        self.queue.kick("work", all=True)
        topics = self.queue.stats().topics.items()
        live = sum(topic.jobs for name, topic in topics if name != FLOWS)  # which are kept for a day
        return not live and set(accepted(self.lines())) <= self._ended()

    def _ended(self) -> set[tuple[str, str]]:
        return {line.job for line in self.lines() if line.what == "end"}

    def failed_calls(self) -> list[str]:
        """Scripts of one version that failed on data of the other, though nothing was lost by it."""
        found = re.findall(r"^(old|new)\S*: .*?user_\w+:\d+: (.*?) script: ", self.logs(), re.MULTILINE)
        return [
            f"a script of {version} failed {count} times: {why}" for (version, why), count in Counter(found).items()
        ]

    def logs(self) -> str:
        """What the processes logged, without the attempts whose bodies let them fail."""
        lines = [(log.name, line) for log in self._folder.glob("*.log") for line in log.read_text().splitlines()]
        return "\n".join(f"{name}: {line[:500]}" for name, line in lines if "as told" not in line)

    def close(self) -> None:
        for process in self._running:
            process.kill()
            process.wait()
        self.queue.close()


# -- the ledger


def accepted(lines: Sequence[Line]) -> dict[tuple[str, str], float]:
    """Each job that has to run, and when it is due, in ms."""
    cancelled = {line.job for line in lines if line.what == "cancelled"}
    found = {line.job: float(str(line.more[0])) for line in lines if line.what == "accepted"}
    return {job: due_ms for job, due_ms in found.items() if job not in cancelled}


def broken(lines: Sequence[Line], killed: set[int]) -> list[str]:
    """What the journal says that must not be. A job may run again if the process that ran it was killed."""
    lines = sorted(lines, key=lambda line: line.at_ms)
    of_job: dict[tuple[str, str], list[Line]] = defaultdict(list)
    for line in lines:
        of_job[line.job].append(line)
    found = []
    for job, due_ms in accepted(lines).items():
        ends = [line for line in of_job[job] if line.what == "end"]
        starts = [line for line in of_job[job] if line.what == "start"]
        again = len(ends) > 1 and not any(line.pid in killed for line in starts)
        found += [f"{job} is lost"] * (not ends) + [f"{job} ran {len(ends)} times"] * again
        found += [f"{job} was early" for line in starts[:1] if line.at_ms < due_ms - 1 and job[0] != "unique"]
    for line in lines:
        after = [each for each in of_job[line.job] if each.at_ms > line.at_ms]
        if line.what == "cancelled" and any(each.what == "start" for each in after):
            found.append(f"{line.job} started after it was cancelled")
        if line.what == "accepted" and len(line.more) > 1:
            found += _started_before(line, of_job)
    return found + _at_once(lines, killed)


def _started_before(line: Line, of_job: dict[tuple[str, str], list[Line]]) -> list[str]:
    """A job that has begun before those that it waits for had ended."""
    begun = min((each.at_ms for each in of_job[line.job] if each.what == "start"), default=float("inf"))
    parents = [tuple(parent) for parent in line.more[1]]
    return [
        f"{line.job} began before {parent} had ended"
        for parent in parents
        if min((each.at_ms for each in of_job[parent] if each.what == "end"), default=float("inf")) > begun
    ]


def _at_once(lines: Sequence[Line], killed: set[int]) -> list[str]:
    """Attempts of one key that ran at the same time; those of killed processes ended with these."""
    running: dict[object, tuple[str, str]] = {}
    found = []
    for line in lines:
        if line.topic != "by_key" or line.pid in killed or line.what not in ("start", "end", "raised"):
            continue
        if line.what != "start":
            running.pop(line.more[0], None)
        elif (other := running.get(line.more[0])) is not None:
            found.append(f"{line.job} ran beside {other}, of the same key")
        if line.what == "start":
            running[line.more[0]] = line.job
    return found


# -- the versions


def older(ref: str, folder: Path) -> Version:
    """What FROM names, in an environment of its own."""
    source = Path(ref).absolute()
    if source.suffix != ".whl":
        archive = subprocess.run(["git", "archive", ref], cwd=ROOT, capture_output=True, check=True).stdout
        source = folder / "source"
        source.mkdir()
        subprocess.run(["tar", "-x", "-C", source], input=archive, check=True)
    uv("venv", "--quiet", "--python", sys.executable, folder / "old")
    python = folder / "old" / "bin" / "python"
    uv("pip", "install", "--quiet", "--python", python, "--constraint", ROOT / "constraints.txt", f"{source}[cli]")
    return Version("old", python)


def audited(version: Version, url: str) -> str:
    """'' if the version's audit balances."""
    done = subprocess.run(
        [version.python, "-m", "streamdq", "--url", url, "audit"], capture_output=True, text=True, check=False, cwd="/"
    )
    return "" if done.returncode == 0 else f"audit of {version.name}: {done.stdout}{done.stderr}"


def run(ref: str, jobs: int) -> list[str]:
    """All phases; prints what each version did, and returns what is broken."""
    with tempfile.TemporaryDirectory(prefix="streamdq-upgrade-") as path, Server(binaries()[-1]) as server:
        folder = Path(path)
        old, new = older(ref, folder), Version("new", Path(sys.executable))
        running = Run(server, folder, jobs)
        try:
            for topic in TOPICS:
                running.queue.configure(topic, create=True, shards=SHARDS.get(topic, 1), result=RESULTS.get(topic))
            running.queue.configure("by_key", key_concurrency=1)
            running.queue.schedule("ticks", {"ms": 0, "fails": 0}, id="tick", every="1s")
            running.start(old, "work", "work", "produce")
            running.go_on(old)
            running.start(new, "work", "work", "produce")
            running.go_on(old, new)
            running.kill_movers(old, new)
            running.stop(old)
            running.go_on(new)
            running.stop(new)
            running.start(old, "work", "work", "produce")
            running.go_on(old)
            running.stop(old)
            running.queue.unschedule("ticks", "tick")
            running.start(old, "work")
            running.start(new, "work")
            until(running.drained, "all is done")
            running.stop()
            found = broken(running.lines(), old.killed | new.killed)
            found += filter(None, [audited(version, server.url) for version in (old, new)])
            found += running.failed_calls()
            _print(running, old, new)
            return found
        except TimeoutError as error:
            raise AssertionError(running.logs()) from error
        finally:
            running.close()


def _print(running: Run, *versions: Version) -> None:
    lines = running.lines()
    for version in versions:
        counts = {
            what: sum(line.what == what and line.pid in version.pids for line in lines)
            for what in ("accepted", "cancelled", "start", "raised", "end")
        }
        say(f"{version.name}: {counts}, {len(version.killed)} movers killed")
    ticks = {line.id for line in lines if line.topic == "ticks" and line.what == "end"}
    say(f"{len(ticks)} occurrences of the schedule")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ref", help="a commit, a tag, or a wheel")
    parser.add_argument(
        "--jobs", type=int, default=300, help="so many end in each phase, by each version (%(default)s)"
    )
    options = parser.parse_args()
    found = run(options.ref, options.jobs)
    for line in found:
        say(line)
    say("broken" if found else "both versions kept every job")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
