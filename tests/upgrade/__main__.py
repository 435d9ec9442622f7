"""``python -m tests.upgrade``: writes data/current.json.gz anew, with the oldest server here: others can load it."""

from __future__ import annotations

from tests.servers import Server, binaries
from tests.upgrade import stored

with Server(binaries()[0]) as server:
    stored.make(server)
