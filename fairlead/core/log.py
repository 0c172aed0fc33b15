"""Log lines as data: one JSON object a line, or columns for people.

The commands call `set_up_logging` once, before anything runs; everyone else asks `structlog.get_logger()`. Lines of
libraries that use the standard library's logging come out in the same form. Everything goes to stderr: stdout belongs
to what a command answers.
"""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

import orjson

# DOC-MERGED core/hiding
# Importing a package as if another one were not installed. Used for structlog in `log.py`.
#
# Some packages import others merely because they are there, for features that we do not use, and every start waits.


@contextmanager
def hidden(package: str) -> Iterator[None]:
    """Whoever imports the package meanwhile is told that there is none. Afterwards all is as before."""
    before = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == package}
    for name in before:
        del sys.modules[name]
    sys.modules[package] = None  # type: ignore[assignment]  # how Python itself notes what must not be found
    try:
        yield
    finally:
        del sys.modules[package]
        sys.modules.update(before)


# structlog would bring in rich and much below it, for tracebacks that show the values of variables and are never used.
with hidden("rich"):
    import structlog
    from structlog.typing import Processor

ENRICH: tuple[Processor, ...] = (
    structlog.contextvars.merge_contextvars,
    structlog.processors.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
)


def set_up_logging(level: str, form: str, stream: TextIO | None = None) -> None:
    """`level` is one of the standard names in any case, `form` is json or console."""
    stream = stream or sys.stderr
    number = logging.getLevelNamesMapping()[level.upper()]
    rendering = _rendering(form, colors=stream.isatty())
    structlog.configure(
        processors=[*ENRICH, *rendering],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(stream),
        cache_logger_on_first_use=True,
    )
    _adopt_standard_logging(number, stream, rendering)


def _rendering(form: str, colors: bool) -> tuple[Processor, ...]:
    if form == "console":
        # Not structlog's own choice: that one prints the local variables of every frame, and secrets with them.
        return (structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback),)
    return (structlog.processors.format_exc_info, structlog.processors.JSONRenderer(serializer=_to_json))


def _to_json(value: object, **_: object) -> str:
    """structlog also hands over keywords for the standard library's encoder, which mean nothing here."""
    return orjson.dumps(value, default=repr, option=orjson.OPT_NON_STR_KEYS).decode()


def _adopt_standard_logging(number: int, stream: TextIO, rendering: tuple[Processor, ...]) -> None:
    handler = logging.StreamHandler(stream)
    remove_meta = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(processors=[remove_meta, *rendering], foreign_pre_chain=ENRICH)
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(number)
    # It tells of every request at the level of ordinary news, which would drown ours.
    logging.getLogger("httpx").setLevel(max(number, logging.WARNING))
