"""Commands as they are sent."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from hiredis import pack_command

from streamdq.link.command import Command, packed

_SIGNALS = """
import signal
from streamdq.link.command import Command, packed

class Interrupted(Exception):
    pass

def interrupt(*_):
    raise Interrupted

signal.signal(signal.SIGALRM, interrupt)
command, count = Command("k", ("EVALSHA", *range(2000))), 0
while count < 300:
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0005)
        while True:
            packed(command)
    except Interrupted:
        count += 1
print(count)
"""


def test_each_kind_of_word() -> None:
    words: Any = ("SET", "ключ", b"\xff\r\n", 0, -7, 2**64, 1.5, 1e300, memoryview(b"m"))
    assert packed(Command("k", words)) == pack_command(words)


def test_a_handler_of_signals_may_raise_meanwhile() -> None:
    ran = subprocess.run([sys.executable, "-c", _SIGNALS], capture_output=True, timeout=60, check=False, text=True)
    assert (ran.returncode, ran.stdout) == (0, "300\n"), ran.stderr
