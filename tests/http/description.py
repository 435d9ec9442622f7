"""The API's description, which several files of tests go through. It takes half a second to make, in each process."""

from __future__ import annotations

from typing import Any

from streamdq.http import create_app

DESCRIPTION: dict[str, Any] = create_app("memory://unused", authentication="mine").openapi()
