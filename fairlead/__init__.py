"""Fairlead: a Kubernetes-style management API server in one process.

The path of a request, from the street to the ground. Each step is a folder; none knows the ones above it.

    kubectl, a browser, a program
      |
      |  HTTPS
      v
    server/       bytes in, bytes out. `pipeline.py` lists the STAGES that every call walks through, in order
    gateway/      the same for bytes that only pass through, to clusters, spaces and virtual clusters
      |
      |->  authn/       who are you?
      |->  authz/       may you?
      |->  admission/   is this change acceptable here?
      v
    registry/     what each verb does to an object, once for every kind; kinds/ says what the kinds are
      v
    storage/      revisioned bytes under tuple keys, and the picture in memory that reads are served from

Beside the path: `controllers/` keeps things true afterwards, `client/` talks to a server from outside, `cli/` is what
people type. `app` puts it all together from `settings/__init__.py`, and `core/` holds the words that everyone shares.
"""

__version__ = "0.1.0"
