"""What a real worker writes: lines that name the job, and nothing that is the user's secret."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamdq import Queue
from streamdq.cli import app as cli
from streamdq.config import Settings
from streamdq.link.address import parse_url
from streamdq.process.logs import beginning_without_credentials, end_without_credentials, hide_credentials, log
from tests.cases import each
from tests.cli.conftest import Start
from tests.servers import Server, binaries
from tests.waiting import HANG_S, until

WORKER = """
from typing import Annotated
from pydantic import AfterValidator, BaseModel
from streamdq import Bury, Job, Worker

worker = Worker(concurrency=20, show_errors=False)

def check(text: str) -> str:
    if text.startswith("odd"):
        raise ValueError(f"can't take {text}")
    if text.startswith("broken"):
        raise KeyError(text)
    return text

class Body(BaseModel):
    text: Annotated[str, AfterValidator(check)]

@worker.handler("t", ttr="20s", retry="0 0")
async def handle(body: Body, job: Job) -> None:
    if job.id == "bury":
        raise Bury(f"no good: {body.text}")
    if job.id == "leaves":
        raise SystemExit(body.text)
    raise RuntimeError(f"failed with {body.text} at https://me:swordfish@shop.example/x?token=swordfish")

@worker.on_dead
def told(job: Job) -> None:
    raise RuntimeError(f"told of {job.body}")
"""
SECRET = "swordfish"


@pytest.fixture
def server() -> Iterator[Server]:
    if not binaries():
        pytest.skip("no Redis server on this machine")
    with Server(binaries()[0], options={"requirepass": SECRET}) as server:
        yield server


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_worker_whose_handlers_fail_writes_no_secret(start: Start, server: Server, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(WORKER)
    env = {**os.environ, "STREAMDQ_URL": server.url}
    with Queue(server.url) as queue:
        for id in ("fails", "bury", "leaves"):
            queue.enqueue("t", {"text": SECRET}, id=id, url=f"https://shop.example/?key={SECRET}")
        queue.enqueue("t", {"text": f"odd {SECRET}"}, id="odd")
        queue.enqueue("t", {"text": f"broken {SECRET}"}, id="broken")
        queue.enqueue("t", {SECRET: SECRET, "text": {SECRET: 1}}, id="misfit")
        process = start("worker", "shop:worker", "--log-level", "debug", env=env)
        until(lambda: len(queue.dead("t")) == 6, "all are dead")
        server.kill()  # connections fail, with the password in the URL
        seen = []
        assert process.stderr is not None
        for line in process.stderr:
            seen.append(line)
            if "loop failed" in line:
                break
    process.terminate()
    seen.append(process.communicate(timeout=HANG_S)[1])

    text = "".join(seen)
    events = lines(text)
    about_a_job = [event for event in events if "attempt" in event or "id" in event]
    assert {event["id"] for event in about_a_job} == {"fails", "bury", "leaves", "odd", "broken", "misfit"}
    assert all({"topic", "id", "group", "attempt", "consumer"} <= event.keys() for event in about_a_job)
    of_one = [event for event in about_a_job if event["id"] == "fails"]
    failed = next(event for event in of_one if event["event"] == "attempt ended")
    raised = WORKER[: WORKER.index('raise RuntimeError(f"failed')].count("\n") + 1
    assert failed["at"] == f"{tmp_path / 'shop.py'}:{raised}"
    traced = next(event for event in of_one if event["event"] == "attempt failed")
    assert traced["way"][-1] == f"{failed['at']} handle"
    assert {"attempt ended", "on_dead failed", "loop failed, restarting"} <= {e["event"] for e in events}
    assert SECRET not in text


@pytest.mark.parametrize(
    "text",
    [
        "redis://me:swordfish@host:1/0",
        "redis://host:1/0?password=swordfish&db=1",
        "unix:///run/redis.sock?password=swordfish",
        "https://shop.example/hook?access_token=swordfish",
        "https://shop.example/hook?a=1&X-Amz-Signature=swordfish#x",
        "Authorization: Bearer swordfish.swordfish",
        "can't connect: host=db password=swordfish",
        "redis://:sword/swordfish@host:1/0 is away",
        "postgresql+psycopg://me:a/swordfish@host/db is away",
        "https://me:a/swordfish@host/path answered 500",
        "the password: swordfish",
    ],
)
def test_credentials_are_hidden_in_any_text(text: str) -> None:
    assert SECRET not in hide_credentials(text)
    assert hide_credentials(text).split(":")[0] == text.split(":")[0]


BAD_URLS = [
    "redis://:swordfish", "redis://me:swordfish", "redis://:sword/swordfish@host:1", "redis://:12/swordfish@host:1/0",
    "redis://:#swordfish@host", "redis://host:1?password=swordfish&socket_timeout=soon", "redis://[::1]:swordfish",
    "redis+cluster://:swordfish", "redis+cluster://a:1,b:swordfish", "redis+cluster://:swordfish@a",
    "redis+sentinel://:swordfish@a:1", "unix://:swordfish@/x?socket_timeout=soon", ":swordfish@host:1",
]  # fmt: skip
AWAY = [
    f"{kind}://:swordfish@127.0.0.1:1{rest}"
    for kind, rest in {"redis": "", "redis+cluster": "", "redis+sentinel": "/x"}.items()
]


COMMANDS = [
    ["stats"], ["enqueue", "t", "1"], ["doctor"], ["exporter"], ["serve", "--port", "0"], ["worker", "shop:worker"],
    ["dump", "--out", "x"], ["archive", "--to", "sqlite:///x.db"], ["callback", "--topic", "t"],
]  # fmt: skip
LONG_RUNNING = ("exporter", "serve", "worker", "callback")  # they wait until Redis is there


PAIRS = [(command, url) for command in COMMANDS for url in BAD_URLS]
PAIRS += [(command, url) for command in COMMANDS if command[0] not in LONG_RUNNING for url in AWAY]


@pytest.mark.parametrize(
    ("command", "url"),
    [
        (command, url)
        if command == COMMANDS[0] or url in (BAD_URLS[0], AWAY[0])  # all of either kind; the other pairs later
        else pytest.param(command, url, marks=pytest.mark.thorough)
        for command, url in PAIRS
    ],
)
def test_no_command_shows_the_password_of_its_url(
    command: list[str], url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("STREAMDQ_CALL_TIMEOUT_S", "0.2")
    (tmp_path / "shop.py").write_text("from streamdq import Worker\nworker = Worker()\nworker.handler('t')(print)\n")

    assert cli.run(["--url", url, *command]) in (2, 3)

    out, err = capsys.readouterr()
    assert out == ""
    assert "streamdq: " in err
    assert SECRET not in err


def test_what_knows_the_password_does_not_show_it() -> None:
    url = "redis+cluster://:swordfish@127.0.0.1:1"
    assert SECRET not in repr(parse_url(url)) + repr(parse_url(url).describe()) + repr(Settings(url=url))


@each(
    "text",
    [
        "password=swordfish", "PASSWORD=swordfish", "a?key=swordfish", "ba\u017fic swordfish",
        "pwd=swordfish passphrase=swordfish private_key=swordfish", "AWS_SECRET_ACCESS_KEY=swordfish",
        "no signature fits whsec_swordfish", "password = swordfish", "aws_secret_access_key = swordfish",
        "SECRET_KEY: swordfish", "api_key: swordfish", "password : 'a swordfish'", 'secret="a swordfish, too"',
        "refused: sdq_swordfish", "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nswordfish\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES\n\nswordfish",
        "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nswordfish", "DB_PASS=swordfish", "a?pass=swordfish&b=1",
        "AccountName=a;AccountKey=swordfish==", "password    =    swordfish", "password => swordfish",
        "password=['swordfish']", "User(password=Pw('swordfish'))", "ghp_swordfish is not known", "Bearer: swordfish",
        "github_pat_swordfish", "sk_test_swordfish", "eyJhbGciOiJI.eyJzdWIiOiIx.swordfish expired",
        "password=Nonesuch-swordfish", "Command 'mysql --password swordfish' returned 1",
        "<wsse:Password Type='x'>swordfish</wsse:Password>",
    ],
)  # fmt: skip
@each("beside", ["", "…"])
def test_they_are_hidden_in_text_of_any_alphabet(text: str, beside: str) -> None:
    assert SECRET not in hide_credentials(beside + text)


@each(
    "text",
    [
        "401: {'Authorization': 'Token swordfish', 'Accept': '*/*'}", "X-Api-Key: swordfish", "x-auth-token: swordfish",
        "Cookie: session=swordfish; theme=dark", "{b'Set-Cookie': b'session=swordfish'}",
        "Proxy-Authorization: Digest swordfish", "refused: {'user': 'me', 'password': 'swordfish'}",
        """{'password': "it's swordfish"}""", r'{"password": "ab\"swordfish"}', r'\"password\": \"swordfish\"',
        "[(b'x-api-key', b'swordfish')]", "('Authorization', 'Token swordfish')", "[('Cookie', 'a=swordfish')]",
        '{"client_secret": "swordfish", "id": 7}', '"api-key" : "swordfish"', "Authorization: Bearer swordfish",
    ],
)  # fmt: skip
@each("beside", ["", "…"])
def test_they_are_hidden_as_programs_show_headers_and_fields(text: str, beside: str) -> None:
    assert SECRET not in hide_credentials(beside + text)


@pytest.mark.parametrize(
    "text",
    [
        "topic a@b: https://shop.example/path?page=2 answered 500; basic rules",
        "unexpected token: expected a value", "at http://host:80/a@b, [::1]:80/a@b",
        "cookie jar is empty", "{'tokenizer': 'gpt'}", "Basic authentication failed",
        "connect(password=None, token=null)", "--token --verbose", "<token/><id>7</id>",
    ],
)  # fmt: skip
def test_text_without_credentials_stays(text: str) -> None:
    assert hide_credentials(text) == text


def test_none_shows_where_a_long_text_was_cut() -> None:
    url = f" postgresql://app:{SECRET}@db"
    for cut in range(-12, 1):
        text = "password=" + "x" * (4000 - 9 - len(url) - cut) + url + " …" * 100
        shown = beginning_without_credentials(text, 1000, 4000)
        assert "app:" not in shown
        assert "password=…" in shown
    for cut in range(len(url)):
        assert "fish" not in end_without_credentials("x" * 50 + url + "y" * 100, len(url) + 100 - cut)
    assert beginning_without_credentials("a b" * 10, 5, 20) == "a ba "
    assert end_without_credentials("one two three", 9) == " three"


def test_a_program_that_set_up_no_logging_gets_no_secret_either(caplog: pytest.LogCaptureFixture) -> None:
    log.warning("x", body={"a": SECRET}, url=f"redis://:{SECRET}@h", nested=[{"token": SECRET, "id": "kept"}])

    assert SECRET not in caplog.text
    assert "kept" in caplog.text
