"""One typed method per Lua script. The scripts' headers are the contract; these modules only pack and unpack.

Methods are operations (see link/session.py): use them with ``yield from``, or pass them to ``run`` or ``arun``.
"""

from __future__ import annotations

from .attempts import AttemptScripts
from .consumers import ConsumerScripts
from .dead_letters import DeadLetterScripts
from .erasure import ErasureScripts
from .flows import FlowScripts
from .jobs import JobScripts
from .links import LinkScripts
from .outside import OutsideScripts
from .schedules import ScheduleScripts
from .searches import SearchScripts
from .topics import TopicScripts


class Scripts(
    JobScripts,
    LinkScripts,
    FlowScripts,
    AttemptScripts,
    ConsumerScripts,
    DeadLetterScripts,
    TopicScripts,
    SearchScripts,
    ScheduleScripts,
    OutsideScripts,
    ErasureScripts,
):
    """The state transitions of one namespace."""
