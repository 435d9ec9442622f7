"""Tools ask the HTTP API within this process. So roles, topics and groups of a token, limits, the audit log and the
texts of errors are the same as over HTTP.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote, urlencode

from fastapi import FastAPI
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError

from ..http.in_process import answer

_NEXT = {
    "no-job": "job_history shows the past attempts of a job that has ended, stats the topics that there are.",
    "unknown-topic": "stats lists the topics that there are.",
    "unknown-group": "stats lists the groups of each topic.",
    "job-busy": "abort_job stops a running job, and kick_dead sends a dead one back. get_job shows the state.",
    "job-exists": "get_job shows the job that has the id. If it is another one, choose another id.",
    "forbidden": "Ask who runs this server for a token with more rights; another call does not help.",
    "too-busy": "Wait a few seconds, then repeat the call.",
    "redis-unavailable": "Wait a few seconds, then repeat the call. If it fails again, tell who runs Redis.",
}
"""What to do after each kind of problem, by the names of tools; others say it themselves."""


@dataclass(frozen=True, slots=True)
class Api:
    """The API. ``token``: that of the only caller; empty: each request has its own, if any."""

    app: FastAPI
    token: str

    async def ask(
        self,
        context: Context[Any, Any],
        method: str,
        path: tuple[str, ...],
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Any:
        """The JSON of the answer; None if it has no content. Of ``query`` and ``body``, None is left out.

        Raises:
            ToolError: it is a problem; the text says what to do.
        """
        encoded = "/" + "/".join(quote(part, safe="") for part in path)
        content = b"" if body is None else json.dumps(_given(body)).encode()
        status, _headers, found = await answer(self.app, self._scope(context, method, encoded, query, content), content)
        if status >= 400:
            raise ToolError(_advice(found))
        return json.loads(found) if found else None

    def _scope(
        self, context: Context[Any, Any], method: str, path: str, query: Mapping[str, Any] | None, content: bytes
    ) -> dict[str, Any]:
        request = context.request_context.request  # None where the transport is no HTTP
        token = f"Bearer {self.token}" if self.token else (context.headers or {}).get("authorization", "")
        headers = {"host": "localhost", "authorization": token, "content-length": str(len(content))}
        if content:
            headers["content-type"] = "application/json"
        return {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
            "path": unquote(path), "raw_path": path.encode(), "root_path": "", "server": ("localhost", None),
            "query_string": urlencode(_given(query or {}), doseq=True).encode(),
            "headers": [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()],
            "client": getattr(request, "client", None) or ("", 0),
        }  # fmt: skip


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _advice(found: bytes) -> str:
    problem = json.loads(found)
    kind = problem["type"].rpartition(":")[2]
    parts = [problem["title"], problem.get("detail"), _NEXT.get(kind)]
    return ". ".join(str(part).rstrip(".") for part in parts if part) + "."
