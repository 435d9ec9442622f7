"""Reports failed attempts to Sentry: one issue for each topic and kind of error."""

from __future__ import annotations

try:
    import sentry_sdk
    from sentry_sdk.integrations.logging import ignore_logger
except ImportError:
    from ..errors import MissingExtra

    raise MissingExtra("sentry-sdk", "sentry") from None

from ..job.retry import Retry, Snooze
from ..worker.middleware import Attempt, CallNext


class SentryMiddleware:
    """Middleware that reports what handlers raise: ``worker.middleware(SentryMiddleware())``. Not ``Retry`` and
    ``Snooze``, by which a handler asks to go on later. Of a job whose body is encrypted, only the class is reported:
    Sentry stores messages and local variables, which may quote the body.

    Each attempt has a scope of its own. Its tags ``streamdq.topic``, ``streamdq.group`` and ``streamdq.attempt``, and
    the job's id, are on everything that is reported meanwhile. What streamdq logs is not reported a second time.
    """

    def __init__(self) -> None:
        ignore_logger("streamdq")

    async def __call__(self, attempt: Attempt, call_next: CallNext) -> None:
        job = attempt.job
        with sentry_sdk.isolation_scope() as scope:
            scope.set_transaction_name(f"process {attempt.topic}", source="task")
            scope.set_tag("streamdq.topic", attempt.topic)
            scope.set_tag("streamdq.group", attempt.group)
            scope.set_tag("streamdq.attempt", job.attempt)
            scope.set_context("job", {"id": job.id, "jobs": len(attempt.jobs), "late_ms": attempt.late_ms})
            try:
                await call_next()
            except (Retry, Snooze):
                raise
            except Exception as error:
                kind = type(error).__qualname__
                scope.fingerprint = ["streamdq", attempt.topic, kind]
                if any(job.is_hidden for job in attempt.jobs):
                    sentry_sdk.capture_message(kind, level="error")
                else:
                    sentry_sdk.capture_exception(error)
                raise
