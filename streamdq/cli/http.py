"""Commands of the HTTP server: serve, and tokens for it."""

from __future__ import annotations

import errno
import signal
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .. import terminal
from ..config import HttpSettings, read_text
from ..errors import InvalidInput
from ..queue import carry_out, store_of
from .common import Json, answer, commands, open_queue
from .metrics import LogFormat, LogLevel, begin_logs

if TYPE_CHECKING:
    from ..http.signing_secrets import Secrets

app = commands()


@app.command(rich_help_panel="Servers")
def serve(
    context: typer.Context,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0: any free one.")] = 8080,
    tokens_file: Annotated[
        Path | None,
        typer.Option(
            help="A file of tokens, made by `streamdq token --file`; SIGHUP reloads it. Else $STREAMDQ_HTTP_TOKENS."
        ),
    ] = None,
    audit_log: Annotated[
        Path | None,
        typer.Option(help="Write a line for each request that may change something; SIGHUP reopens the file."),
    ] = None,
    ssl_certfile: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Use TLS, with this certificate and its chain.")
    ] = None,
    ssl_keyfile: Annotated[
        Path | None,
        typer.Option(
            exists=True, dir_okay=False, help="Its key; the key's password: $STREAMDQ_HTTP_SSL_KEYFILE_PASSWORD."
        ),
    ] = None,
    ssl_ca_certs: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="Require client certificates that one of these has signed."),
    ] = None,
    log_level: LogLevel = "info",
    log_format: LogFormat = "auto",
) -> None:
    """Serve the HTTP API and the operations page.

    For producers, workers and operators, in any language and in a browser. Runs until SIGTERM or Ctrl-C.

    \b
    streamdq serve &
    curl -X PUT localhost:8080/v1/topics/order.close/jobs/order-42 \\
      -H 'Content-Type: application/json' -d '{"body": {"order_id": 42}, "delay": "30m"}'

    Without tokens anyone who can reach the server may do everything, so it then listens on this machine only. The web
    page is at /, the API's description at /openapi.json. Logs go to stderr: as text on a terminal, else as JSON lines.
    """  # noqa: D301 - typer reads the mark
    begin_logs(log_level, log_format)
    with _hangups_wait():
        from ..http import create_app
        from ..http import serve as run
        from ..http.auth import LOOPBACK_NAMES, Tokens, check_bind
        from ..http.limits import fitted
        from ..http.proxy_users import ProxyUsers

        settings = fitted(HttpSettings())
        tokens = Tokens.read(tokens_file) if tokens_file else Tokens.parse(settings.tokens, "STREAMDQ_HTTP_TOKENS")
        user_of = ProxyUsers.of(settings)
        if user_of is not None and not tokens.required:
            tokens = Tokens(required=True)
        check_bind(host, tokens)  # without tokens, nobody else can reach it
        hosts = None if tokens.required else (*LOOPBACK_NAMES, host)
        made = create_app(
            context.obj.url, context.obj.namespace, http=settings, tokens=tokens, authentication="mine",
            allowed_hosts=hosts, audit_log=audit_log, user_of=user_of,
        )  # fmt: skip
        tls = {
            "ssl_certfile": ssl_certfile, "ssl_keyfile": ssl_keyfile, "ssl_ca_certs": ssl_ca_certs,
            "ssl_keyfile_password": settings.ssl_keyfile_password,
            "ssl_cert_reqs": ssl.CERT_REQUIRED if ssl_ca_certs else ssl.CERT_NONE,
        }  # fmt: skip
        if ssl_certfile is None and (ssl_keyfile or ssl_ca_certs):
            raise InvalidInput("name the certificate with --ssl-certfile")
        run(made, host, port, settings, tokens_file, tls if ssl_certfile else None)


@contextmanager
def _hangups_wait() -> Iterator[None]:
    """Lets no SIGHUP end the command before the server handles it, which then reads its files again."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


SECRET = commands(help="Replace the secret that signs claims over HTTP.")
app.add_typer(SECRET, name="secret", rich_help_panel="Servers")


@SECRET.command()
def rotate(context: typer.Context, as_json: Json = False) -> None:
    """Sign claims with a new secret.

    Claims signed with the previous one stay valid until `streamdq secret drop`, which must come before the next
    rotation. All servers use the new secret within ten seconds. Sessions are not signed, and are not affected. Exit
    code 1: there still is a previous secret, and nothing was changed.
    """
    from ..http.signing_secrets import new_secret

    new = new_secret()
    before, after = _rotated(context, new)
    made = after.text.startswith(new)
    if not made:
        text = (
            f"not rotated: claims signed with the secret that was replaced at {_since(after)} are still valid. If the "
            "longest TTR has passed since then, or if that secret has leaked, run streamdq secret drop and rotate again"
        )
    elif not before.text:
        text = "the first secret was made; claims are signed with it"
    else:
        text = (
            "all servers sign claims with a new secret within ten seconds. Claims signed with the previous one stay "
            "valid: run streamdq secret drop when the longest TTR has passed"
        )
    answer(as_json, {"rotated": made, "since_ms": after.since_ms}, text, yes=made)


@SECRET.command()
def drop(context: typer.Context, as_json: Json = False) -> None:
    """Drop the previous secret, which `rotate` replaced.

    Claims signed with it become invalid, and their jobs are delivered again when their TTR has passed. So wait for the
    longest TTR after rotating, unless the secret has leaked.
    """
    before, _ = _rotated(context, "")
    if before.since_ms is None:
        text = "nothing to drop: there is no previous secret"
    else:
        text = (
            f"the secret that was replaced at {_since(before)} is dropped: within ten seconds no server accepts "
            "claims signed with it"
        )
    answer(as_json, {"dropped": before.since_ms is not None}, text)


def _rotated(context: typer.Context, new: str) -> tuple[Secrets, Secrets]:
    from ..http.signing_secrets import Secrets

    with open_queue(context) as queue:
        before, after = carry_out(queue, store_of(queue).scripts.rotate_secret(new))
    return Secrets(before), Secrets(after)


def _since(secrets: Secrets) -> str:
    return f"{datetime.fromtimestamp((secrets.since_ms or 0) / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


@app.command(rich_help_panel="Servers")
def token(
    name: Annotated[str, typer.Argument(help="The token's name, as logs show it", show_default=False)],
    roles: Annotated[list[str], typer.Argument(help="producer, worker, viewer, admin", show_default=False)],
    topics: Annotated[
        str | None, typer.Option(help="Only these topics, such as 'order.*,mail'; by default all.", metavar="NAMES")
    ] = None,
    groups: Annotated[
        str | None, typer.Option(help="Only these consumer groups; by default all.", metavar="NAMES")
    ] = None,
    expires: Annotated[
        str | None, typer.Option(help="Valid for this long, such as 90d; by default until its line is removed.")
    ] = None,
    file: Annotated[Path | None, typer.Option(help="Add the token's line to this file.")] = None,
    as_json: Json = False,
) -> None:
    """Make a token for the HTTP API.

    The token is shown only once, because only its hash is kept. Without --file, the line with the hash is printed as
    well, for a file of tokens or $STREAMDQ_HTTP_TOKENS.

    \b
    streamdq token shop producer worker --file tokens
    streamdq token mailer worker --topics 'mail.*' --groups default --expires 90d --file tokens
    """  # noqa: D301 - typer reads the mark
    from ..http.auth import new_token, roles_in

    made, line = new_token(name, roles_in(",".join(roles)), topics=topics, groups=groups, expires=expires)
    if file is not None:
        _add(file, line)
    if as_json:
        terminal.print_json({"token": made, "line": line})
        return
    terminal.say(made)
    if file is None:
        terminal.say(line)


def _add(file: Path, line: str) -> None:
    """Appends the line to the file. Its old content stays intact, even if the disk is full. Only the owner can read a
    new file.
    """
    from ..http.auth import Tokens

    try:
        there = read_text(file) if file.exists() else ""
        added = line if not there or there.endswith("\n") else f"\n{line}"
        Tokens.parse(f"{there}{added}", str(file))
        file.touch(mode=0o600)
        _append(file, f"{added}\n".encode())
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"file: can't add to {file}: {error}") from None


def _append(file: Path, text: bytes) -> None:
    """Appends all of the text, or nothing."""
    with file.open("ab", buffering=0) as opened:
        end = opened.tell()
        if (written := opened.write(text)) != len(text):
            opened.truncate(end)
            raise OSError(errno.ENOSPC, f"{written} of {len(text)} bytes were written", str(file))
