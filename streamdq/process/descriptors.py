"""The descriptors 0 to 2: stdin, stdout and stderr."""

from __future__ import annotations

import os


def reserve_standard() -> None:
    """Opens those that are closed, as in a daemon, on /dev/null. Otherwise a connection would get the number, what a
    child process prints would go there, and libuv ends the process when it closes it.
    """
    while (opened := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(opened, True)
    os.close(opened)
