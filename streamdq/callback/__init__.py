"""HTTP callbacks: a worker that POSTs each job's body to its ``url``.

Needs ``pip install 'streamdq[http]'``. What receivers see and how they check it is in docs/callbacks.md.
"""

from ..errors import InvalidInput

try:
    import aiohttp as _aiohttp
    import standardwebhooks as _standardwebhooks
except ImportError as error:
    raise InvalidInput(f"callbacks need {error.name}: pip install 'streamdq[http]'") from None

from .settings import CallbackSettings
from .worker import CallbackWorker

__all__ = ["CallbackSettings", "CallbackWorker"]

del _aiohttp, _standardwebhooks
