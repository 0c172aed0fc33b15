"""Limits of one process in a server with several workers: its share of what all of them may use together.

Connections, and so requests and memory, spread evenly over the workers. So memory is divided by their number, with a
minimum that still serves the largest request. Limits that must be exact for a user are counted by the coordinator
instead (`server/workers/`), and limits about one event loop apply to each worker as they are. docs/operations.md has
the whole table. With one worker, all functions return the ordinary limits.
"""

from fairlead.server.audit.intake import AuditQuotas
from fairlead.server.audit.log_writer import MAX_QUEUED_BYTES as MAX_AUDIT_BYTES
from fairlead.server.audit.log_writer import MAX_QUEUED_EVENTS as MAX_AUDIT_EVENTS
from fairlead.server.audit.log_writer import AuditLogWriter, Sink
from fairlead.server.flow.control import MAX_QUEUED_BYTES as MAX_QUEUED_BODY_BYTES
from fairlead.server.http.memory_budgets import MAX_UNREAD_CONNECTIONS, MemoryLimits
from fairlead.server.http.unsent import REQUEST_BODY_LIMITS, RESPONSE_LIMITS, ClientMemoryLimiter
from fairlead.settings import Settings
from fairlead.signin.passwords import MAX_CONCURRENT_HASHES, MAX_WAITING_HASHES, PasswordHasher
from fairlead.storage.view.view import MAX_HISTORY_BYTES

MIN_HISTORY_BYTES = 32 * 1024 * 1024
"""With less, many watches could not resume after a short interruption."""
MIN_AUDIT_BYTES = 4 * 1024 * 1024
"""Room for one event with the bodies of the largest request and response."""
MIN_UNREAD_CONNECTIONS = 8


def build_memory_limiter(settings: Settings, workers: int) -> ClientMemoryLimiter:
    """Bounds the memory of unread responses and incoming bodies."""
    return ClientMemoryLimiter(
        settings.body_limit,
        _divide_memory(RESPONSE_LIMITS, workers),
        _divide_memory(REQUEST_BODY_LIMITS, workers),
        max(MAX_UNREAD_CONNECTIONS // workers, MIN_UNREAD_CONNECTIONS),
    )


def _divide_memory(limits: MemoryLimits, workers: int) -> MemoryLimits:
    """A connection belongs to one worker, so it keeps its limit, and no other limit is smaller."""
    least = limits.connection
    return MemoryLimits(least, max(limits.user // workers, least), max(limits.total // workers, least))


def queued_body_bytes(settings: Settings, workers: int) -> int:
    """The total size of the bodies of queued requests."""
    return max(MAX_QUEUED_BODY_BYTES // workers, min(settings.body_limit, MAX_QUEUED_BODY_BYTES))


def history_bytes(workers: int) -> int:
    """The size of the history in memory, from which watches resume."""
    return max(MAX_HISTORY_BYTES // workers, MIN_HISTORY_BYTES)


def build_password_hasher(workers: int) -> PasswordHasher:
    return PasswordHasher(
        max_concurrent=max(MAX_CONCURRENT_HASHES // workers, 1), max_waiting=_divide(MAX_WAITING_HASHES, workers)
    )


def build_audit_writer(sink: Sink, workers: int, max_bytes: int = MAX_AUDIT_BYTES) -> AuditLogWriter:
    return AuditLogWriter(sink, _divide(MAX_AUDIT_EVENTS, workers), max(max_bytes // workers, MIN_AUDIT_BYTES))


def audit_quotas(settings: Settings, workers: int) -> AuditQuotas:
    """What a worker does not record one by one, it counts. So a smaller quota loses details, but no request."""
    return AuditQuotas(_divide(settings.audit_rejected, workers), _divide(settings.audit_reads, workers))


def _divide(limit: int, workers: int) -> int:
    """Rounded up, so that only 0 becomes 0."""
    return -(-limit // workers)
