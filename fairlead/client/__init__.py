"""Synchronous client for the management API, used by the CLI, by runners, and by users' own programs.

    with Client("https://fairlead.example.com", key) as client:
        for project in client.list("projects"):
            print(project["metadata"]["name"])

Modules:
    client.py, watch.py       HTTP requests; resumable watches
    errors.py                 `ClientError` and its subclasses; the text says what to do next
    tls.py                    TLS contexts and certificate fingerprints
    contexts.py               stored logins
    login_sessions.py         logins with a short-lived key, which is refreshed
    workspace_streams.py      WebSockets of the subresources of workspaces
    discovery.py              finds API resources by name, kind or short name
    kubeconfig.py             reads and writes kubeconfig files
    admin_kubeconfig.py       the kubeconfig of the first administrator; admin_reset.py: requests for a new key of it
    kubeconfig_export.py      exports one kubeconfig context for use on another machine
"""

from fairlead.client.client import DEFAULT_GROUP, Client
from fairlead.client.errors import ApiStatusError, Cause, CertificateError, ClientError, DeadlineExceeded, Unreachable
from fairlead.client.watch import Event

__all__ = [
    "DEFAULT_GROUP",
    "ApiStatusError",
    "Cause",
    "CertificateError",
    "Client",
    "ClientError",
    "DeadlineExceeded",
    "Event",
    "Unreachable",
]
