"""Logging. Lines go to structlog if the program has configured it, otherwise to the standard logger ``streamdq``, which
shows only warnings and errors; while ``Worker.run`` serves in a program that has configured neither, also the rest.

The commands call ``configure``: text on a terminal, JSON lines elsewhere. Bodies, passwords and tokens are never
logged, but messages of exceptions that handlers raise are, unless the worker has ``show_errors=False``.

What strangers wrote, such as ids, bodies and errors, is made ``visible`` before a terminal shows it: a terminal acts on
control characters, 8-bit ones included, and characters that set the writing direction make one name look like another.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import sys
import sysconfig
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from types import CoroutineType, TracebackType
from typing import TYPE_CHECKING, Any, cast

from ..errors import StreamdqError
from .log_lines import FIELDS, HandedOver, LineHandler, count_lost, is_terminal

if TYPE_CHECKING:
    from structlog.typing import EventDict, Processor, WrappedLogger

_MOST_CALLS = 50
_MOST_CHARS = 16_384  # of a text in a line
_LONGEST_WORD = 4096
OWN_CODE = f"{Path(__file__).parents[1]}{os.sep}"
"""Where streamdq's own files are."""
_NOT_THEIRS = (sysconfig.get_path("stdlib"), OWN_CODE)
LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("auto", "console", "json", "logfmt")
_NUMBERS = {level: getattr(logging, level.upper()) for level in LEVELS}
_SECRET = frozenset({
    "body", "bodies", "raw_body", "password", "passwd", "secret", "secrets", "token", "tokens", "api_key",
    "authorization", "cookie", "headers", "signature",
})  # fmt: skip
# Greedy up to the last @ before a slash, because a password may contain an @.
_CREDENTIALS = re.compile(r"(?<=://)[^/\s]*@")
# In a database's URL the password may also contain a slash, by mistake; an @ in the path is not to be expected. In two
# steps, the word and its parts: a pattern for both would look through the word once for each URL that may begin in it.
_WORD = re.compile(r"\S+")
_DATABASE = re.compile(r"(?i)\b(?:rediss?|redis\+\w{1,30}|postgres(?:ql)?(?:\+\w{1,30})?)://")
_SECRETS = (
    r"(?:pass(?:word|wd|phrase)?|pwd|secret|token|signature|credential"
    r"|(?:access|account|api|encryption|private|secret|signing)[_-]?key)s?"
)
_SOME = r"(?!(?:None|null|true|false)(?:[\s,;)\]}]|$))"  # that there is none often tells what is wrong
_IS = r"\s{0,9}(?:[:=]>?|->)\s{0,9}"
# In a URL, and in the way drivers describe their connection: password=x host=y.
_PARAMETER = re.compile(rf"(?i)((?:{_SECRETS}|[?&;](?:key|sig|auth))=['\"]?){_SOME}[^&;#\s'\"]+")
# As settings are written: password = x, api_key: 'x y'. Not of tokens: parsers tell of an unexpected one.
_SAID = re.compile(
    r"(?i)((?:pass(?:word|wd|phrase)|pwd|secret|(?:access|account|api|encryption|private|secret|signing)[_-]?key)s?"
    rf"{_IS}){_SOME}[^\s'\",;]+"
)
# Also within brackets, as password=['x'] and password=Secret('x'); and as fields are shown: "password": "x".
_ITS = rf"({_SECRETS}[\\'\"\s]{{0,12}}[:=,>-][\s=>\w\[({{\\]{{0,40}})(?<![ac-z0-9_])"  # no apostrophe, as in can't
_QUOTED = re.compile(rf"(?is){_ITS}'(?:[^'\\]|\\.)+")
_DOUBLY_QUOTED = re.compile(rf'(?is){_ITS}"(?:[^"\\]|\\.)+')
# What tells by its beginning that it is one: streamdq's own, and of services that many call.
_KNOWN = re.compile(
    r"\b(whsec_|sdq_|gh[pousr]_|github_pat_|glpat-|[sr]k_(?:live|test)_|sk-(?:ant|proj|svcacct)-|xox[a-z]-|AKIA|AIza|npm_|hf_)"
    r"[A-Za-z0-9+/=_-]{8,}|\b(eyJ)[A-Za-z0-9_.-]{20,}"  # the latter: JSON Web Tokens
)
# As options of a command, which an error of subprocess quotes, and as elements of XML.
_OPTION = re.compile(rf"(?i)(--[a-z0-9-]{{0,30}}{_SECRETS}\s{{1,9}})(?!-)[^\s'\",]+")
_ELEMENT = re.compile(rf"(?i)(<(?:\w{{1,30}}:)?\w{{0,30}}{_SECRETS}(?:\s[^<>]{{0,200}})?>)[^<>]+")
_PEM = re.compile(r"(-----BEGIN [A-Z ]{0,30}PRIVATE KEY(?: BLOCK)?-----)[\w+/=\s\\:,.-]+")
# As programs show headers and fields: {'Authorization': 'Token x'}, "password": "x". Bounded: texts come from anywhere.
_HEADER = re.compile(
    r"(?i)(\b(?:(?:proxy-)?authorization|(?:set-)?cookie|x-[a-z-]{0,30}(?:token|key|secret|signature))['\"]?\s{0,3}"
    r"(?:[:=]\s{0,3}(?:b?['\"])?|(?<=['\"]),\s{0,3}b?['\"]))(?!\s{0,3}(?:bearer|basic)\s)[^'\"\r\n]+"
)
_BEARER = re.compile(r"(?i)\b(bearer|basic)[\s:=]+(?!auth)[A-Za-z0-9+/=._~-]{8,}")
# And the words of which each of them needs one: to look for these takes a tenth of the time, and most texts have none.
_WORDS = ("pass", "pwd", "secret", "token", "signature", "credential", "key")
_NAMED = (
    (_QUOTED, r"\1'…", _WORDS),
    (_DOUBLY_QUOTED, r'\1"…', _WORDS),
    (_PEM, r"\1…", ("private key",)),
    (_PARAMETER, r"\1…", (*_WORDS, "key=", "sig=", "auth=")),
    (_HEADER, r"\1…", ("authorization", "cookie", "x-")),
    (_BEARER, r"\1 …", ("bearer", "basic")),
    (_SAID, r"\1…", ("pass", "pwd", "secret", "key")),
    (_OPTION, r"\1…", _WORDS),
    (_ELEMENT, r"\1…", _WORDS),
    (
        _KNOWN,
        r"\1\2…",
        (
            "whsec_",
            "sdq_",
            "gh",
            "github",
            "glpat-",
            "k_live_",
            "k_test_",
            "sk-",
            "xox",
            "akia",
            "aiza",
            "npm_",
            "hf_",
            "eyj",
        ),
    ),
)
# C0 except tab and newline, DEL, C1; the marks, embeddings, overrides and isolates of Unicode's bidirectional
# algorithm; line and paragraph separators; the byte order mark; surrogates, which can't be written at all.
_OBEYED = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


def _configured() -> Any:
    """structlog, if the program has configured it. It is not imported for that: its import takes longer than that of
    any other library here, as it brings what formats lines for terminals.
    """
    if "structlog" not in sys.modules:
        return None
    import structlog  # waits if another thread is about to import it

    return structlog if structlog.is_configured() else None


def _unheard(_event: str, **_fields: Any) -> bool:
    """Takes a line that the standard logger would not show."""
    return True


ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]


class Log:
    """One of streamdq's loggers. It looks up the program's configuration for each line, because programs may configure
    logging after the import. It removes secrets first. A line never raises: if what the program has configured does,
    such as a filter of its own or a pipe that is gone, the line is counted and dropped, and returns False.
    """

    def __init__(self, name: str = "streamdq") -> None:
        self._name = name

    def __getattr__(self, level: str) -> Any:
        if (number := _NUMBERS.get(level)) is None:
            raise AttributeError(level)
        if handed_over.is_from_here():
            return partial(self._hand_over, level)
        structlog = _configured()
        standard = logging.getLogger(self._name)
        if structlog is None and not standard.isEnabledFor(number):
            return _unheard

        def line(event: str, *, exc_info: ExcInfo | None = None, **fields: Any) -> bool:
            try:
                words = _without_secrets(fields)
                if structlog is not None:
                    raised = {} if exc_info is None else {"exc_info": exc_info}
                    getattr(structlog.get_logger(self._name), level)(event, **words, **raised)
                    return True
                words = {"event": event, **words}
                text = " ".join(f"{name}={value!r}" for name, value in words.items())
                standard.log(number, text, exc_info=exc_info, stacklevel=2, extra={FIELDS: words})
            except Exception:
                count_lost()
                return False
            return True

        return line

    def _hand_over(self, level: str, event: str, **fields: Any) -> bool:
        handed_over.put(lambda: getattr(self, level)(event, **fields))
        return True

    def shows(self, level: str) -> bool:
        """Whether lines of this level may be shown, as far as that can be known."""
        try:
            if (structlog := _configured()) is None:
                return logging.getLogger(self._name).isEnabledFor(_NUMBERS[level])
            bound = structlog.get_logger(self._name).bind()
            asks = [name for name in ("isEnabledFor", "is_enabled_for") if hasattr(type(bound), name)]
            return not asks or bool(getattr(bound, asks[0])(_NUMBERS[level]))
        except Exception:  # of what the program has configured
            return False


log = Log()
handed_over = HandedOver()
"""The lines of the threads that must not wait."""


def hide_credentials(text: str) -> str:
    """The text without the user names, passwords and tokens in its URLs and HTTP headers."""
    low = text.lower() if text.isascii() else None  # other letters may count as the same, whatever the case
    if "://" in text and "@" in text:
        text = _CREDENTIALS.sub("…@", _WORD.sub(_without_login, text))
    for secret, shown, words in _NAMED:
        if low is None or any(word in low for word in words):
            text = secret.sub(shown, text)
    return text


def beginning_without_credentials(text: str, most: int, looked_at: int) -> str:
    """At most so many characters of the text, without credentials. It is cut after these are hidden: of a URL without
    its end, nobody could tell which part is the password. Only ``looked_at`` characters of it are looked through, as
    that takes time; if so much of them is hidden that the end of these would show, the last word is left out.
    """
    shown = hide_credentials(text[:looked_at])
    if len(text) > looked_at and len(shown) <= most:
        shown = shown[: len(shown) - len(shown.split()[-1])] if shown.split() else ""
    return shown[:most]


def end_without_credentials(text: str, most: int) -> str:
    """At most so many characters of the text's end, without credentials; of a longer text, from the next word on."""
    if len(text) > most:
        text = text[-most:]
        found = _WORD.match(text)
        text = text[found.end() :] if found else text
    return hide_credentials(text)


def _without_login(word: re.Match[str]) -> str:
    """A word without what is between a URL's scheme and the last @, if the URL is a database's, or has a slash in its
    password: then the part before the slash is no host, as no port follows the colon.
    """
    text = word[0]
    at = text.rfind("@")
    if at < 0:
        return text
    if (scheme := _DATABASE.search(text, 0, at)) is not None:
        return f"{text[: scheme.end()]}…{text[at:]}"
    head, there, rest = text.partition("://")
    host, _, port = rest.partition("/")[0].rpartition(":")
    if there and host and port and not port.isdecimal() and "@" not in host and not host.startswith("["):
        return f"{head}://…{text[at:]}"
    return text


def what(error: BaseException) -> str:
    """An error, for a log line. For streamdq's and the system's errors: class and message. Messages of other errors may
    come from users' code and quote a body; for these: the class and where it was raised.
    """
    name = type(error).__name__
    if isinstance(error, StreamdqError | OSError):
        try:
            return f"{name}: {error}"
        except Exception:  # of a subclass, or of what it was given
            return name
    at = where(error)
    return f"{name} at {at}" if at else name


def way(error: BaseException) -> list[str]:
    """The calls that led to the error, as file:line and function, the raising one last: a traceback without messages
    and values, which could quote a body. Only the last calls, in case of an endless recursion.
    """
    calls = deque(traceback.walk_tb(as_exc_info(error)[2]), maxlen=_MOST_CALLS)
    return [f"{frame.f_code.co_filename}:{line} {frame.f_code.co_qualname}" for frame, line in calls]


def as_exc_info(error: BaseException) -> ExcInfo:
    """The exception as the standard library's loggers take it, without the calls of streamdq that led to the user's
    code.
    """
    # Not error.__traceback__: a user's class may redefine this attribute.
    calls: TracebackType | None = BaseException.__dict__["__traceback__"].__get__(error)
    theirs = calls
    while theirs is not None and theirs.tb_frame.f_code.co_filename.startswith(OWN_CODE):
        theirs = theirs.tb_next
    return type(error), error, theirs or calls


def cause_of(error: BaseException) -> BaseException | None:
    """The exception that led to this one."""
    own = BaseException.__dict__
    found: BaseException | None = own["__cause__"].__get__(error) or own["__context__"].__get__(error)
    return found


def parts_of(error: BaseException) -> tuple[BaseException, ...]:
    """The exceptions of a group."""
    if not issubclass(type(error), BaseExceptionGroup):
        return ()
    found: tuple[BaseException, ...] = BaseExceptionGroup.__dict__["exceptions"].__get__(error)
    return found


def where(error: BaseException) -> str:
    """The file and line that raised the error; '' if it was not raised."""
    found = way(error)
    return found[-1].rpartition(" ")[0] if found else ""


def where_called(error: BaseException) -> str:
    """The last of the user's lines that led to the error: for one that was raised in a library's await."""
    return place_of(users_calls(way(error))) or where(error)


def place_of(calls: Sequence[str]) -> str:
    """The file and line of the last of these calls; '' without any."""
    return calls[-1].rpartition(" ")[0] if calls else ""


def users_calls(calls: Sequence[str]) -> list[str]:
    """Those of ``way`` or ``calls_of`` that are neither streamdq's nor of Python's library."""
    return [call for call in calls if not call.startswith(_NOT_THEIRS)]


def calls_of(thread: int | None) -> list[str]:
    """The calls that a thread is in now, as ``way`` shows them; none if it has ended."""
    frame = None if thread is None else sys._current_frames().get(thread)
    calls = islice(traceback.walk_stack(frame), _MOST_CALLS) if frame else ()  # the innermost first
    return [f"{frame.f_code.co_filename}:{line} {frame.f_code.co_qualname}" for frame, line in calls][::-1]


def calls_in(task: asyncio.Task[Any]) -> list[str]:
    """The calls that a task waits in, likewise."""
    calls, waits = list[str](), cast(Any, task.get_coro())
    while isinstance(waits, CoroutineType) and (frame := waits.cr_frame) is not None:
        calls.append(f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_qualname}")
        waits = waits.cr_await
    return calls[-_MOST_CALLS:]


def redact(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """A structlog processor: drops fields with users' data, and credentials from every text. Other objects become
    texts first, because their own representation could show a secret.
    """
    clean: EventDict = _without_secrets(event)
    return clean


def _without_secrets(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, dict):
        return {name: _without_secrets(part) for name, part in value.items() if str(name).lower() not in _SECRET}
    if isinstance(value, list | tuple | set | frozenset):
        return [_without_secrets(part) for part in value]
    return hide_credentials(_beginning(str(value)))


def _beginning(text: str) -> str:
    """Of a long text: a line is for people, and to look through a body that an error quotes takes long. The last word
    is cut as well, because half a password is not recognized as one.
    """
    if len(text) <= _MOST_CHARS:
        return text
    kept = text[:_MOST_CHARS]
    end = max(kept.rfind(" "), kept.rfind("\n"), kept.rfind("\t"))
    if end < _MOST_CHARS - _LONGEST_WORD:  # no words: only what may begin a URL goes
        end = kept.find("://", max(end, 0))
    kept = kept[:end] if end > 0 else kept
    return f"{kept}… ({len(text) - len(kept)} more characters)"


def _for_people(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """A structlog processor: replaces control characters, so that a terminal does not act on them, and leaves out what
    has no value.
    """
    shown = {name: value for name, value in event.items() if value is not None}
    return {name: visible(value) if isinstance(value, str) else value for name, value in shown.items()}


def destination() -> tuple[Any, ...]:
    """Where lines go now, to compare it later: a program may configure structlog or the root logger when it is
    imported. The logger of streamdq is not asked for: dictConfig disables those that there are.
    """
    return (_configured(), *logging.getLogger().handlers)


def configure(level: str = "info", form: str = "auto") -> None:
    """Sends structlog and the standard loggers to stderr, in one of ``FORMATS``; auto: as text on a terminal, else as
    JSON.
    """
    import structlog

    form = _form(form)
    logging.basicConfig(handlers=[_handler(form)], level=level.upper(), force=True)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_shared(form),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


@contextmanager
def shown_in_script() -> Iterator[None]:
    """Shows streamdq's own lines on stderr meanwhile, as ``configure`` does, if nobody has said where lines go. As soon
    as somebody does, they go there alone.
    """
    logger = logging.getLogger("streamdq")
    if _configured() is not None or logger.hasHandlers():
        yield
        return
    handler, before = _handler(_form(os.environ.get("STREAMDQ_LOG_FORMAT", ""))), logger.level
    handler.addFilter(lambda _line: _configured() is None and not logging.getLogger().handlers)
    logger.addHandler(handler)
    if before == logging.NOTSET:
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()
        if before == logging.NOTSET:
            logger.setLevel(before)


def _form(form: str) -> str:
    """What ``auto`` stands for; an unknown format is taken for it, as logging must not fail."""
    known = form in FORMATS and form != "auto"
    return form if known else "console" if is_terminal(sys.stderr) else "json"


def _shared(form: str) -> list[Processor]:
    import structlog

    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="%H:%M:%S" if form == "console" else "iso", utc=form != "console"),
    ]


def _fields_of(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """A structlog processor: takes the fields of one of streamdq's own lines from the standard record."""
    event.update(getattr(event["_record"], FIELDS, {}))
    return event


def _renderer(form: str) -> Processor:
    import structlog

    if form == "json":
        return structlog.processors.JSONRenderer()
    if form == "logfmt":
        return structlog.processors.LogfmtRenderer(key_order=("timestamp", "level", "event"), bool_as_flag=False)
    # structlog's own tracebacks would show the variables of every function, including bodies.
    return structlog.dev.ConsoleRenderer(
        pad_event_to=30, sort_keys=False, exception_formatter=structlog.dev.plain_traceback
    )


def _with_plain_names(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """A structlog processor: logfmt has no spaces in names, and one line for each event."""
    return {"_".join(str(name).split()): value for name, value in event.items()}


def _handler(form: str) -> logging.Handler:
    import structlog

    handler = LineHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[_fields_of, *_shared(form)],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,  # turns exceptions into text, so that they are redacted, too
                redact,
                *([] if form == "json" else [_for_people]),
                *([_with_plain_names] if form == "logfmt" else []),
                _renderer(form),
            ],
        )
    )
    return handler


def visible(text: str) -> str:
    r"""The text with characters that a terminal would act on escaped as in Python: ``\x9b``, ``\u202e``."""
    return _OBEYED.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def visible_json(text: str) -> str:
    """JSON with these characters escaped. Its meaning stays the same, as they can only occur in strings."""
    return _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
