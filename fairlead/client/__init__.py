"""A small synchronous client of the management API: for the commands, for runners, and for users' own programs.

    with Client("https://fairlead.example.com", key) as client:
        for project in client.list("projects"):
            print(project["metadata"]["name"])

`client.py` speaks to the server, `watch.py` keeps a watch going, `tls.py` says whom to trust, `contexts.py` keeps
logins on the disk, `discovery.py` finds a resource by what people call it, and every failure is a `ClientError` of
`errors.py` whose text is one sentence that says what to do next.
"""

from fairlead.client.client import DEFAULT_GROUP, Client
from fairlead.client.errors import ApiProblem, Cause, ClientError, DeadlinePassed, Unreachable, Untrusted
from fairlead.client.watch import Event

__all__ = [
    "DEFAULT_GROUP",
    "ApiProblem",
    "Cause",
    "Client",
    "ClientError",
    "DeadlinePassed",
    "Event",
    "Unreachable",
    "Untrusted",
]
