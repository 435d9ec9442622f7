"""One Queue for a Flask application."""

from __future__ import annotations

from ..errors import MissingExtra
from ..queue import Queue

try:
    from flask import Flask, current_app
except ImportError:
    raise MissingExtra("flask") from None

__all__ = ["Streamdq"]

_NAME = "streamdq"


class Streamdq:
    """The extension: ``jobs = Streamdq(app)``, or ``jobs = Streamdq()`` and ``jobs.init_app(app)`` in an application
    factory; then ``jobs.queue`` is the Queue of the current application.

    Reads ``STREAMDQ_URL`` and ``STREAMDQ_NAMESPACE`` of the application's config; a missing one has Queue's default.
    """

    def __init__(self, app: Flask | None = None) -> None:
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Makes the application's queue, also found in ``app.extensions["streamdq"]``. It connects with its first call,
        is shared by threads, and makes its own connections in a forked child.

        Raises:
            RuntimeError: the application has one already.
        """
        if _NAME in app.extensions:
            raise RuntimeError("this application already has a queue: call init_app once")
        app.extensions[_NAME] = Queue(app.config.get("STREAMDQ_URL"), app.config.get("STREAMDQ_NAMESPACE"))

    @property
    def queue(self) -> Queue:
        """That of the current application.

        Raises:
            RuntimeError: there is no application context, or ``init_app`` was not called for its application.
        """
        queue: Queue | None = current_app.extensions.get(_NAME)
        if queue is None:
            raise RuntimeError("this application has no queue: call Streamdq.init_app(app)")
        return queue
