"""`enqueue --file`: how real data comes in."""

import io
import json
import subprocess
import sys
from functools import partial
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from streamdq import Queue
from streamdq.cli import input as cli_input
from streamdq.job.body import encode_body
from streamdq.store.jobs import records
from tests.cli.conftest import Run, Start
from tests.servers import Server
from tests.waiting import HANG_S, until


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    return tmp_path / "jobs.ndjson"


def write(path: Path, *lines: Any) -> None:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))


def test_a_line_is_a_body_or_a_job(run: Run, queue: Queue, jobs: Path) -> None:
    write(jobs, {"n": 1}, {"body": {"n": 2}, "id": "two", "delay": "1h"}, "", {"body": {"body": 3}, "id": "three"})

    result = run("enqueue", "t", "--file", str(jobs), "--delay", "5h", "--json")

    two, three = queue.get("t", "two"), queue.get("t", "three")
    assert result.code == 0
    assert result.json == {"created": 3, "existing": 0, "existing_ids": []}
    assert two is not None
    assert three is not None
    assert (two.body, two.due_ms - two.created_ms) == ({"n": 2}, 3_600_000)
    assert (three.body, three.due_ms - three.created_ms) == ({"body": 3}, 5 * 3_600_000)


def test_a_line_has_every_field_of_a_job(run: Run, queue: Queue, jobs: Path) -> None:
    write(
        jobs,
        {
            "body": 1, "id": "x", "at": "2030-01-31T09:00:00+08:00", "ttr": 7, "retry": ["1s", 2], "expire": "1h",
            "url": "https://merchant.example/", "delay": None,
        },
        {"body": 1, "id": "y", "at": 1900000000000},
    )  # fmt: skip

    result = run("enqueue", "t", "--file", str(jobs), "--delay", "1h")

    x, y = queue.get("t", "x"), queue.get("t", "y")
    assert result.code == 0, result.err
    assert x is not None
    assert y is not None
    assert x.due.isoformat() == "2030-01-31T01:00:00+00:00"
    assert (x.ttr_ms, x.retry, x.expire_ms, x.url) == (7000, "1000ms 2000ms", 3_600_000, "https://merchant.example/")
    assert y.due_ms == 1900000000000


def test_a_bad_first_line_enqueues_nothing(run: Run, queue: Queue, jobs: Path) -> None:
    write(jobs, "{", {"body": 1, "id": "after"})
    result = run("enqueue", "t", "--file", str(jobs))
    assert result.code == 2
    assert result.err.rstrip().endswith(". Nothing was enqueued")
    assert queue.stats().topics == {}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{'n': 1}", "not JSON"),
        ('{"body": 1, "dealy": "5m"}', "a job has no field 'dealy'"),
        ('{"body": 1, "delay": -1}', "negative"),
        ('{"body": 1, "delay": [1]}', "is not a duration"),
        ('{"body": 1, "retry": [[]]}', "retry"),
        ('{"body": 1, "id": 7}', "id"),
        ('{"body": 1, "at": "2030-01-31T09:00:00"}', "no time zone"),
        ('{"body": 1, "at": [1]}', "at"),
        ('{"body": null}', "blank"),
        ("NaN", "not JSON"),
        ('"' + "x" * 300_000 + '"', "more than the"),
        ('"' + "x" * 2_000_000 + '"', "longer than"),
    ],
)
def test_a_bad_line_ends_it_and_what_was_in_stays(run: Run, queue: Queue, jobs: Path, line: str, why: str) -> None:
    good = [{"body": i, "id": f"job-{i}", "delay": "1h"} for i in range(700)]
    write(jobs, *good, line, {"body": 1, "id": "after"})

    result = run("enqueue", "t", "--file", str(jobs), "--json")

    assert result.code == 2
    assert "line 701: " in result.err
    assert why in result.err
    assert "tail -n +701" in result.err
    assert result.err.count("\n") == 1
    assert (result.json["created"], result.json["bad_line"]) == (700, 701)
    assert queue.stats("t").delayed == 700
    assert queue.get("t", "after") is None


def loading(start: Start, server: Server, queue: Queue) -> subprocess.Popen[str]:
    """A file of 700 lines that is still being written; a batch of it has been enqueued."""
    process = start("--url", server.url, "enqueue", "t", "--file", "-", "--delay", "1h", stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write("".join(f"{i}\n" for i in range(1, 701)))
    process.stdin.flush()
    until(lambda: "t" in queue.stats().topics and queue.stats("t").delayed == 500, "the first batch")
    return process


def test_a_file_that_redis_refuses_half_way_says_how_far_it_came(
    start: Start, redis_server: Server, queue: Queue
) -> None:
    process = loading(start, redis_server, queue)
    with redis_server.client() as client:
        client.config_set("maxmemory", 1)
        try:
            _, err = process.communicate(timeout=HANG_S)
        finally:
            client.config_set("maxmemory", 0)

    assert process.returncode == 3
    assert "Redis refuses writes" in err
    assert "the first 500 lines were enqueued (500 jobs created); of the next 200 jobs some may have been" in err
    assert err.rstrip().endswith("tail -n +501")
    assert err.count("\n") == 1


@pytest.mark.parametrize(("text", "good"), [(b"1\n2\n3\n", 3), (b"1\n2\nno JSON\n4\n", 2)], ids=["good", "bad line"])
def test_ctrl_c_at_any_moment_tells_what_was_enqueued(queue: Queue, text: bytes, good: int) -> None:
    def interrupt_at(moment: int) -> str | None:
        """What is printed if Ctrl-C comes before the given line of the program; None: it was done before."""
        lines_left = moment

        def trace(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal lines_left
            if frame.f_code.co_filename != cli_input.__file__:
                return None
            lines_left -= event == "line"
            if lines_left < 0:
                sys.settrace(None)
                raise KeyboardInterrupt
            return trace

        source = io.BytesIO(text)
        try:
            sys.settrace(trace)
            cli_input.load_jobs(queue, "t", source, defaults={}, on_conflict="reject", progress=lambda *_: None)
        except KeyboardInterrupt as interrupt:
            return "".join(getattr(interrupt, "__notes__", []))
        except cli_input.BadLine:
            return None
        finally:
            sys.settrace(None)
        return None

    reported = set(iter(partial(next, map(interrupt_at, count())), None))

    none = "the jobs of the first 0 lines were enqueued (0 jobs created){}; continue with: tail -n +1"
    all_good = (
        f"the jobs of the first {good} lines were enqueued ({good} jobs created); continue with: tail -n +{good + 1}"
    )
    unknown = ["", *(f"; of the next {n} jobs some may have been" for n in range(1, good + 1))]
    assert reported - {""} == {all_good, *map(none.format, unknown)}  # nothing: Ctrl-C before the first line was read


def test_each_job_is_encoded_once(run: Run, queue: Queue, jobs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[Any] = []

    def counted(body: Any, max_bytes: int) -> bytes:
        encoded.append(body)
        return encode_body(body, max_bytes)

    monkeypatch.setattr(records, "encode_body", counted)
    write(jobs, *range(1, 4))

    assert run("enqueue", "t", "--file", str(jobs), "--delay", "1h").code == 0

    assert encoded == [1, 2, 3]
    assert queue.stats("t").delayed == 3


def test_an_invalid_topic_is_no_fault_of_a_line(run: Run, jobs: Path) -> None:
    write(jobs, "not JSON")

    result = run("enqueue", "a b", "--file", str(jobs))

    assert result.code == 2
    assert "topic" in result.err
    assert "line 1" not in result.err


def test_a_line_that_is_not_utf8_is_bad(run: Run, jobs: Path) -> None:
    jobs.write_bytes(b'"fine"\n"\xff"\n')

    result = run("enqueue", "t", "--file", str(jobs))

    assert result.code == 2
    assert "line 2: " in result.err


def test_taken_ids_are_counted_and_a_no_unless_kept(run: Run, queue: Queue, jobs: Path) -> None:
    write(jobs, *({"body": 1, "id": f"job-{i}", "delay": "1h"} for i in range(3)))
    queue.enqueue("t", 0, id="job-1", delay="1h")

    first = run("enqueue", "t", "--file", str(jobs), "--json")
    again = run("enqueue", "t", "--file", str(jobs))
    kept = run("enqueue", "t", "--file", str(jobs), "--on-conflict", "keep", "--json")

    assert (first.code, first.json) == (1, {"created": 2, "existing": 1, "existing_ids": ["job-1"]})
    assert again.code == 1
    assert "3 ids were taken: job-0, job-1, job-2" in again.out
    assert (kept.code, kept.json["existing"]) == (0, 3)


def test_a_file_that_is_not_there(run: Run, tmp_path: Path) -> None:
    result = run("enqueue", "t", "--file", str(tmp_path / "none"))
    assert result.code == 2
    assert "No such file" in result.err


def test_a_body_or_a_file_or_neither_and_no_id_with_a_file(run: Run, jobs: Path) -> None:
    write(jobs, 1)
    assert run("enqueue", "t").code == 0
    assert run("enqueue", "t", "1", "--file", str(jobs)).code == 2
    assert run("enqueue", "t", "--file", str(jobs), "--id", "x").code == 2


def test_bodies_and_files_come_through_stdin(run: Run, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    def stdin(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    stdin(b'{"from": "stdin"}\n')
    one = run("enqueue", "t", "-", "--id", "x", "--delay", "1h")
    stdin(b"1\n2\n3")
    many = run("enqueue", "t", "--file", "-", "--delay", "1h")

    job = queue.get("t", "x")
    assert (one.code, many.code) == (0, 0)
    assert job is not None
    assert job.body == {"from": "stdin"}
    assert queue.stats("t").delayed == 4


def test_what_comes_through_a_pipe_is_taken_in_while_it_comes(start: Start, redis_server: Server, queue: Queue) -> None:
    """A producer that never ends must not be waited for: batches go in as they fill."""
    words = "enqueue", "t", "--file", "-", "--delay", "1h"
    process = start("--url", redis_server.url, *words, stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write('{"n": 1}\n' * 1200)
    process.stdin.flush()
    until(lambda: queue.stats().delayed >= 1000, "the first two batches are in")
    process.stdin.write('{"n": 1}\n' * 5)
    out, _ = process.communicate(timeout=HANG_S)

    assert out == "1,205 jobs created\n"
    assert process.returncode == 0


def test_a_file_that_never_ends(run: Run) -> None:
    result = run("enqueue", "t", "--file", "/dev/zero")
    assert result.code == 2
    assert result.err.startswith("streamdq: line 1: longer than ")
    assert run("token", "a", "admin", "--file", "/dev/zero").code == 2
