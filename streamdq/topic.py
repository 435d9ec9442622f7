"""A topic whose bodies have a type, for producers and workers alike."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypedDict, TypeVar, overload

import typing_extensions
from typing_extensions import Unpack

from .codec.envelope import check_version
from .errors import InvalidInput
from .job.after import After, OnFailure
from .job.job import Job, NewJob, Priority, check_own_topic, check_ttr
from .job.retry import RetryInput, RetrySchedule
from .job.uniqueness import DerivedId, UniqueAfter
from .options import suggesting
from .times.durations import Duration, Moment

if TYPE_CHECKING:
    from .job.uniqueness import OnConflict
    from .queue import AsyncQueue, Queue

B = TypeVar("B")
R = TypeVar("R")
Returns = typing_extensions.TypeVar("Returns", default=Any)  # that of Python 3.11 has no default
R_co = TypeVar("R_co", covariant=True)
B_contra = TypeVar("B_contra", contravariant=True)
P = ParamSpec("P")
_NO_TYPES = (str, bytes, int, float, list, tuple, dict, set)


class RowOptions(TypedDict, total=False):
    """The options of ``Queue.enqueue`` that ``outbox.enqueue`` has, too. ``Queue.enqueue`` says what they mean."""

    delay: Duration | None
    at: Moment | str | None
    id: str | DerivedId | None
    ttr: Duration | None
    retry: RetryInput | None
    url: str | None
    expire: Duration | None
    tz: str | None
    quiet: str | None
    key: str | None
    priority: Priority | None
    on_conflict: OnConflict


class JobOptions(RowOptions, total=False):
    """The options of ``Topic.enqueue``: those of ``Queue.enqueue``, without ``version``, which the topic has."""

    window: Duration | None
    unique_for: Duration | None
    rate_of_id: str | None
    at_most: Duration | None
    unique_after: UniqueAfter
    after: After | None
    on_failure: OnFailure
    durable: str | None


# What takes a topic's jobs, by the method that does: what that returns is what the topic's method returns. Overloads
# for each kind of queue would say the same, but a wrong body would then be reported as one that fits none of them.


class Enqueues(Protocol[R_co]):
    """A Queue, an AsyncQueue, or a pipeline."""

    @property
    def enqueue(self) -> Callable[..., R_co]: ...


class EnqueuesMany(Protocol[R_co]):
    """A Queue or an AsyncQueue."""

    @property
    def enqueue_many(self) -> Callable[..., R_co]: ...


class Configures(Protocol[R_co]):
    """A Queue or an AsyncQueue."""

    @property
    def configure(self) -> Callable[..., R_co]: ...


class TopicHandler(Protocol[B_contra, P, R_co]):
    """A function that a worker has registered for a Topic. It stays the function that it is, and has ``enqueue``."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    def enqueue(self, queue: Enqueues[R], body: B_contra, **options: Unpack[JobOptions]) -> R:
        """As ``Topic.enqueue`` of its topic."""
        ...


class Topic(Generic[B, Returns]):
    """A topic with the type of its bodies: ``orders = Topic("order.close", CloseOrder, ttr="30s")``. Both sides use it,
    ``orders.enqueue(queue, CloseOrder(...))`` and ``@worker.handler(orders)``, and mypy and pyright report a body that
    is of another type. In Redis it is the topic of that name, and workers check bodies as they do for any topic.

    ``ttr``, ``retry``: a worker with a handler for it sets them for its group; ``configure`` sets them for the topic.
    ``version``: of the body's shape, for ``enqueue`` and for handlers (``Worker.upcast``); None: not stated.
    ``result``: the type of what the handler returns, for ``orders.result(queue, job)``.

    Raises:
        InvalidInput: an argument is invalid.
    """

    @suggesting
    def __init__(
        self,
        name: str,
        body: type[B],
        *,
        ttr: Duration | None = None,
        retry: RetryInput | None = None,
        version: int | None = None,
        result: type[Returns] | None = None,
    ) -> None:
        self.name = check_own_topic(name)
        if isinstance(body, _NO_TYPES):
            raise InvalidInput(f"body: {body!r:.80} is a value; pass the bodies' type, such as a dataclass or dict")
        self.body = body
        if ttr is not None:
            check_ttr(ttr)
        self.ttr = ttr
        self.retry = None if retry is None else RetrySchedule.of(retry)
        self.version = None if version is None else check_version(version)
        self._returns = result

    def __repr__(self) -> str:
        return f"Topic({self.name!r}, {getattr(self.body, '__name__', self.body)})"

    def enqueue(self, queue: Enqueues[R], body: B, **options: Unpack[JobOptions]) -> R:
        """As ``queue.enqueue``, which also says what the options mean; to be awaited if that is. ``queue``: a Queue,
        an AsyncQueue, or a pipeline of one.
        """
        return queue.enqueue(self.name, body, version=self.version or 1, **options)

    def enqueue_many(
        self,
        queue: EnqueuesMany[R],
        jobs: Iterable[NewJob[B]],
        *,
        on_conflict: OnConflict = "reject",
        durable: str | None = None,
    ) -> R:
        """As ``queue.enqueue_many``: ``orders.enqueue_many(queue, [NewJob(CloseOrder(...), delay="30m")])``. Their
        version is the topic's, if it has one. ``queue``: a Queue or an AsyncQueue.
        """
        if (version := self.version) is not None:
            jobs = (_with_version(job, version) for job in jobs)
        return queue.enqueue_many(self.name, jobs, on_conflict=on_conflict, durable=durable)

    @overload
    def result(
        self, queue: Queue, job: Job | str, *, group: str | None = None, timeout: Duration = "30s"
    ) -> Returns: ...

    @overload
    def result(
        self, queue: AsyncQueue, job: Job | str, *, group: str | None = None, timeout: Duration = "30s"
    ) -> Coroutine[Any, Any, Returns]: ...

    def result(
        self, queue: Queue | AsyncQueue, job: Job | str, *, group: str | None = None, timeout: Duration = "30s"
    ) -> Any:
        """As ``queue.result``, which also says what it raises; to be awaited if that is. The result is of the type that
        the topic was given, or raises ResultNotKept. ``job``: a Job, or an id.
        """
        from .queue import result_of

        if isinstance(job, Job) and job.topic != self.name:
            raise InvalidInput(f"result: job {job.id!r} is of topic {job.topic!r}, not of {self.name!r}")
        id = job.id if isinstance(job, Job) else job
        key = job.key if isinstance(job, Job) else None
        return result_of(queue, self.name, id, key, group, timeout, self._validate_result)

    @cached_property
    def _validate_result(self) -> Callable[[bytes], Any] | None:
        if self._returns is None:
            return None
        from pydantic import TypeAdapter

        return TypeAdapter(self._returns).validator.validate_json

    def configure(self, queue: Configures[R]) -> R:
        """Makes ``ttr`` and ``retry`` the topic's, for all groups without settings of their own, such as those of
        ``take`` and of callbacks. Creates a missing topic. ``queue``: a Queue or an AsyncQueue.
        """
        return queue.configure(self.name, ttr=self.ttr, retry=self.retry, create=True)


def enqueueable(function: Any, topic: str | Topic[Any]) -> None:
    """Gives a topic's handler its ``enqueue``: ``close.enqueue(queue, CloseOrder(42))``. One that handles several
    topics says that it can't tell which is meant. A bound method gets none, nor does the handler of a topic's name.
    """
    if not isinstance(topic, Topic):
        return
    before = getattr(getattr(function, "enqueue", None), "__self__", None)
    if isinstance(before, Topic) and before.name != topic.name:
        function.enqueue = _Several(function).enqueue
    elif not hasattr(function, "enqueue"):
        with suppress(AttributeError):
            function.enqueue = topic.enqueue


class _Several:
    def __init__(self, function: Callable[..., Any]) -> None:
        self._name = getattr(function, "__qualname__", repr(function))

    def enqueue(self, *_: Any, **__: Any) -> Any:
        raise InvalidInput(f"enqueue: {self._name} handles several topics; use the enqueue of one of them")


def _with_version(job: Any, version: int) -> Any:
    if isinstance(job, NewJob):
        return replace(job, version=version)
    return {**job, "version": version} if isinstance(job, Mapping) else job  # the queue refuses others, and says why
