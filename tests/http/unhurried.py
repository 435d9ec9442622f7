"""``python -m streamdq``, but the server gives up on no caller that a busy machine makes slow, unless it has to."""

import os
import resource
import signal
import sys
from functools import partial

import uvicorn

from streamdq.cli.app import main
from streamdq.config import HttpSettings
from streamdq.http import limits, request_body, server
from streamdq.http.api import claims
from tests.waiting import HANG_S

if __name__ == "__main__":
    for module, name in ((server, "_GRACE_S"), (server, "LINGER_S"), (request_body, "LINGER_S")):
        setattr(module, name, int(HANG_S))
    claims.MAX_WAIT_S = 10 * int(HANG_S)  # who is told to stop waiting does not look as if it had run out
    uvicorn.Config = partial(uvicorn.Config, timeout_keep_alive=int(HANG_S))  # type: ignore[assignment, misc]
    for name in ("HEADER", "BODY"):
        os.environ.setdefault(f"STREAMDQ_HTTP_{name}_TIMEOUT_S", str(HANG_S))
    if files := int(os.environ["TEST_FILES"]):
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    if os.environ["TEST_LOOP"] == "asyncio":
        sys.modules["uvloop"] = None  # type: ignore[assignment]
    if "TEST_HANGUP" in os.environ:  # one comes while it begins
        fitted = limits.fitted

        def hung_up(settings: HttpSettings) -> HttpSettings:
            os.kill(os.getpid(), signal.SIGHUP)
            return fitted(settings)

        limits.fitted = hung_up
    sys.exit(main())
