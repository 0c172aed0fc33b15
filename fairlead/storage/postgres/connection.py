"""Connections to the database: its URL, their settings, and the messages of their errors.

asyncpg reads host, user, password and TLS options from the URL and from PostgreSQL's environment variables
(PGPASSWORD, PGSSLROOTCERT and so on).
"""

import re
import ssl
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, urlencode, urlsplit

import asyncpg

from fairlead.storage.contract import StoreUnavailable

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

DEFAULT_SCHEMA = "fairlead"
CONNECT_TIMEOUT = 5.0
RETRY_TIMEOUT = 3.0
"""How long to retry while the database is unreachable, so that most restarts go unnoticed."""
RETRY_DELAYS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
"""Seconds between attempts to connect; the last one repeats."""

DATABASE_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
"""All errors that a query can raise. OSError covers broken connections, TLS and timeouts."""

SERVER_SETTINGS = {
    "application_name": "fairlead",
    "default_transaction_isolation": "read committed",  # each statement of the commit function sees the latest commits
    "statement_timeout": "0",  # the client has its own timeouts
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "30000",  # a paused replica must not block the others
    "jit": "off",  # compiling takes longer than these queries
    # Every query has an index. The planner must not fall back to reading and sorting everything, because of missing
    # or outdated statistics or a plan that was cached when the tables were small.
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}

RESTARTING_ADVICE = "it is starting up or shutting down; the store recovers by itself once it is back"
ERROR_ADVICE: tuple[tuple[type[Exception], str], ...] = (
    (asyncpg.InvalidPasswordError, "the password is rejected; correct it in the URL or in PGPASSWORD"),
    (asyncpg.InvalidAuthorizationSpecificationError, "the user is rejected; check the user in the URL and pg_hba.conf"),
    (asyncpg.InvalidCatalogNameError, "there is no such database; create it with `createdb`, or correct the URL"),
    (asyncpg.InsufficientPrivilegeError, "the user lacks a privilege; make it the owner of the server's schema"),
    (asyncpg.TooManyConnectionsError, "it has no free connections; raise max_connections or stop other clients"),
    (asyncpg.CannotConnectNowError, RESTARTING_ADVICE),
    (asyncpg.AdminShutdownError, RESTARTING_ADVICE),
    (asyncpg.CrashShutdownError, RESTARTING_ADVICE),
    (asyncpg.DiskFullError, "its disk is full; free some space, and the store recovers by itself"),
    (asyncpg.ReadOnlySQLTransactionError, "it is read-only, perhaps a standby; use the primary in the URL"),
    (asyncpg.TargetServerAttributeNotMatched, "it is read-only, perhaps a standby; use the primary in the URL"),
    (asyncpg.UndefinedTableError, "its tables are missing; restore a backup, or restart the server to start empty"),
    (asyncpg.UndefinedFunctionError, "its schema is incomplete; restore a backup"),
    (ssl.SSLError, "TLS fails; check sslmode, sslrootcert, sslcert and sslkey in the URL"),
    (TimeoutError, "it does not respond in time; check whether it is overloaded, stopped or unreachable"),
    (OSError, "it cannot be reached; check that it is running, and that host and port are correct"),
    (asyncpg.InterfaceError, "the connection is broken; the store recovers by itself once the database is back"),
)


@dataclass(frozen=True, slots=True)
class PostgresAddress:
    dsn: str
    schema: str
    name: str
    """For messages: without user and password."""

    @property
    def channel(self) -> str:
        """The NOTIFY channel of commits. Channels are per database, so the name contains the schema."""
        return f"fairlead_{self.schema}"


def parse_address(url: str) -> PostgresAddress:
    """Parse a store URL. ValueError messages never quote the URL, which may contain a password."""
    parts = urlsplit(url)
    database = parts.path.removeprefix("/")
    if parts.scheme not in ("postgres", "postgresql") or not parts.netloc or not database or "/" in database:
        raise ValueError("a host and a database name are required")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    schema = options.pop("schema", DEFAULT_SCHEMA)
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,47}", schema):
        raise ValueError("schema must be up to 48 lower-case letters, digits and underscores")
    host = parts.netloc.rpartition("@")[2]
    return PostgresAddress(
        parts._replace(query=urlencode(options)).geturl(), schema, f"PostgreSQL at {host}/{database}"
    )


def connection_arguments(address: PostgresAddress) -> dict[str, Any]:
    return {
        "dsn": address.dsn,
        "timeout": CONNECT_TIMEOUT,
        "server_settings": {**SERVER_SETTINGS, "search_path": address.schema},
        # A standby rejects commits and lags behind.
        "target_session_attrs": "read-write",
    }


async def connect(address: PostgresAddress) -> Connection:
    """Raises DATABASE_ERRORS, or ValueError for invalid connection options."""
    return await asyncpg.connect(**connection_arguments(address))


def explain_error(address: PostgresAddress, error: BaseException) -> StoreUnavailable:
    meanings = [meaning for error_type, meaning in ERROR_ADVICE if isinstance(error, error_type)]
    meaning = meanings[0] if meanings else "it reports an error; see its log"
    detail = str(error) or type(error).__name__
    return StoreUnavailable(f"{address.name}: {meaning} ({detail})")
