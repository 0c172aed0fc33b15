"""SharedSecret: credentials in a namespace that are shared beyond it, by access entries."""

from fairlead.kinds.secret_kinds import secret_kind

SHARED_SECRET = secret_kind(
    "SharedSecret", "sharedsecrets", "Credentials that are shared with people by access entries."
)
