"""Commands of the HTTP server: serve, and tokens for it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .. import views
from ..config import HttpSettings
from ..errors import InvalidInput
from ..session import run as run_operation
from .common import Json, answer, commands, open_queue
from .metrics import LogLevel, begin_logs

if TYPE_CHECKING:
    from ..http.signing import Secrets

app = commands()


@app.command()
def serve(
    context: typer.Context,
    host: Annotated[str, typer.Option(help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8080,
    tokens_file: Annotated[
        Path | None,
        typer.Option(
            help="Tokens, as `streamdq token --file` writes them, read again on SIGHUP; else $STREAMDQ_HTTP_TOKENS."
        ),
    ] = None,
    audit_log: Annotated[
        Path | None,
        typer.Option(help="A line for each request that may change something; opened again on SIGHUP."),
    ] = None,
    ssl_certfile: Annotated[
        Path | None, typer.Option(help="Speak TLS with this certificate, read again on SIGHUP.")
    ] = None,
    ssl_keyfile: Annotated[
        Path | None, typer.Option(help="Its key; its password is $STREAMDQ_HTTP_SSL_KEYFILE_PASSWORD.")
    ] = None,
    ssl_ca_certs: Annotated[
        Path | None, typer.Option(help="Callers must have a certificate that one of these vouches for.")
    ] = None,
    log_level: LogLevel = "info",
) -> None:
    """Serve the HTTP API and the web page.

    For producers, workers and operators, in any language and in a browser. Until SIGTERM or Ctrl-C.

    \b
    streamdq serve &
    curl -X PUT localhost:8080/v1/topics/order.close/jobs/order-42 \\
      -H 'Content-Type: application/json' -d '{"body": {"order_id": 42}, "delay": "30m"}'

    Without tokens it can do everything for everyone who reaches it, so it then listens on this machine alone. The
    web page is at /, the API's description at /openapi.json. Logs go to stderr, as JSON lines unless that is a
    terminal.
    """  # noqa: D301 - typer reads the mark
    begin_logs(log_level)
    from ..http import create_app
    from ..http import serve as run
    from ..http.auth import LOOPBACK_NAMES, Tokens, check_bind
    from ..http.limits import fitted
    from ..http.tls import Tls

    settings = fitted(HttpSettings())
    tokens = Tokens.read(tokens_file) if tokens_file else Tokens.parse(settings.tokens, "STREAMDQ_HTTP_TOKENS")
    check_bind(host, tokens)
    hosts = None if tokens.required else (*LOOPBACK_NAMES, host)
    made = create_app(
        context.obj.url, context.obj.namespace or "streamdq", http=settings, tokens=tokens, allowed_hosts=hosts,
        audit_log=audit_log,
    )  # fmt: skip
    tls = None
    if ssl_certfile is not None:
        tls = Tls(ssl_certfile, ssl_keyfile, settings.ssl_keyfile_password, ssl_ca_certs)
    elif ssl_keyfile is not None or ssl_ca_certs is not None:
        raise InvalidInput("tls: without --ssl-certfile there is none")
    run(made, host, port, settings, tokens_file, tls)


SECRET = commands(help="What the HTTP server signs claims with: replace it, drop the one before.")
app.add_typer(SECRET, name="secret")


@SECRET.command()
def rotate(context: typer.Context, as_json: Json = False) -> None:
    """Sign claims with a new secret.

    Those signed with the one before stay good until that is dropped, by `streamdq secret drop` or by rotating again.
    The servers hear of it within ten seconds. Sessions are not signed, and go on.
    """
    from ..http.signing import Secrets, new_secret

    _tell(Secrets(_rotated(context, new_secret())), as_json)


@SECRET.command()
def drop(context: typer.Context, as_json: Json = False) -> None:
    """Drop the secret before the current one.

    Claims that were signed with it can't be used any more: their jobs are delivered again when their TTR has passed. So
    wait for the longest TTR after rotating, unless the secret is known to somebody.
    """
    from ..http.signing import Secrets

    _tell(Secrets(_rotated(context, "")), as_json)


def _rotated(context: typer.Context, new: str) -> str:
    with open_queue(context) as queue:
        return run_operation(queue._link, queue._operations.scripts.rotate(new))


def _tell(secrets: Secrets, as_json: bool) -> None:
    since_ms = secrets.since_ms
    if since_ms is None:
        text = "claims are signed with one secret" if secrets.text else "there is no secret yet; a server makes it"
    else:
        when = datetime.fromtimestamp(since_ms / 1000, UTC)
        text = f"claims are signed with a new secret since {when:%Y-%m-%d %H:%M:%S} UTC; the one before is good, too"
    answer(as_json, {"since_ms": since_ms}, text)


@app.command()
def token(
    name: Annotated[str, typer.Argument(help="Whose it is; named in the log.", show_default=False)],
    roles: Annotated[list[str], typer.Argument(help="producer, worker, viewer, admin", show_default=False)],
    topics: Annotated[
        str | None, typer.Option(help="For these topics alone, such as 'order.*,mail'; else for all.", metavar="NAMES")
    ] = None,
    groups: Annotated[
        str | None, typer.Option(help="For these consumer groups alone; else for all.", metavar="NAMES")
    ] = None,
    expires: Annotated[
        str | None, typer.Option(help="Good for so long, such as 90d; else until its line is taken out.")
    ] = None,
    file: Annotated[Path | None, typer.Option(help="Add its line to this file.")] = None,
    as_json: Json = False,
) -> None:
    """Make a token for the HTTP API.

    The token is shown once: only its hash is kept. Without --file, its line is shown as well, for a file of tokens or
    $STREAMDQ_HTTP_TOKENS.

    \b
    streamdq token shop producer worker --file tokens
    streamdq token mailer worker --topics 'mail.*' --groups default --expires 90d --file tokens
    """  # noqa: D301 - typer reads the mark
    from ..http.auth import new_token, roles_in

    made, line = new_token(name, roles_in(",".join(roles)), topics=topics, groups=groups, expires=expires)
    if file is not None:
        _add(file, line)
    if as_json:
        views.print_json({"token": made, "line": line})
        return
    views.say(made)
    if file is None:
        views.say(line)


def _add(file: Path, line: str) -> None:
    """Adds the line to the file, which its owner alone may read where it is made here."""
    from ..http.auth import Tokens

    try:
        there = file.read_text(encoding="utf-8") if file.exists() else ""
        text = f"{there.rstrip()}\n{line}\n".lstrip()
        Tokens.parse(text, str(file))
        file.touch(mode=0o600)
        file.write_text(text, encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"file: can't add to {file}: {error}") from None
