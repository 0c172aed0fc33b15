"""Structured logging: one JSON object per line, or columns for a terminal.

The CLI calls `configure_logging` once at startup; all other code uses `structlog.get_logger()`. Lines from libraries
that use the standard library's logging are rendered the same way. Logs go to stderr, because stdout is for the output
of commands.
"""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

import orjson


@contextmanager
def import_without(package: str) -> Iterator[None]:
    """Make imports of the package fail inside the block, as if it were not installed.

    Some packages import optional dependencies only because they are installed. We do not use those features, and
    importing them slows down every start.
    """
    before = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == package}
    for name in before:
        del sys.modules[name]
    sys.modules[package] = None  # type: ignore[assignment]  # Python's own marker for a module that must not be found
    try:
        yield
    finally:
        del sys.modules[package]
        sys.modules.update(before)


# structlog would import rich, which it needs only for tracebacks with variable values. We never use those.
with import_without("rich"):
    import structlog
    from structlog.typing import Processor

SHARED_PROCESSORS: tuple[Processor, ...] = (
    structlog.contextvars.merge_contextvars,
    structlog.processors.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
)


def configure_logging(level: str, log_format: str, stream: TextIO | None = None) -> None:
    """`level` is a standard level name in any case; `log_format` is json or console."""
    stream = stream or sys.stderr
    number = logging.getLevelNamesMapping()[level.upper()]
    rendering = _renderers(log_format, colors=stream.isatty())
    structlog.configure(
        processors=[*SHARED_PROCESSORS, *rendering],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(stream),
        cache_logger_on_first_use=True,
    )
    _redirect_stdlib_logging(number, stream, rendering)


def _renderers(log_format: str, colors: bool) -> tuple[Processor, ...]:
    if log_format == "console":
        # Not structlog's default, which prints the local variables of every frame, including secrets.
        return (structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback),)
    return (structlog.processors.format_exc_info, structlog.processors.JSONRenderer(serializer=_serialize_json))


def _serialize_json(value: object, **_: object) -> str:
    """structlog also passes keyword arguments for the standard library's encoder, which do not apply here."""
    return orjson.dumps(value, default=repr, option=orjson.OPT_NON_STR_KEYS).decode()


def _redirect_stdlib_logging(number: int, stream: TextIO, rendering: tuple[Processor, ...]) -> None:
    handler = logging.StreamHandler(stream)
    remove_meta = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(processors=[remove_meta, *rendering], foreign_pre_chain=SHARED_PROCESSORS)
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(number)
    # httpx logs every request at level info, which would drown our own lines.
    logging.getLogger("httpx").setLevel(max(number, logging.WARNING))
