"""Fairlead: a Kubernetes-style management API server in one process.

The path of a request, outermost layer first. Each step is a package; none imports the packages above it.

    kubectl, a browser, an API client
      |
      |  HTTPS
      v
    server/       the HTTP front end. `server/pipeline.py` has the stages that every request passes
    gateway/      reverse proxy to connected clusters, spaces and virtual clusters
      |
      |->  authn/       authentication
      |->  authz/       authorization
      |->  admission/   admission control for writes
      v
    registry/     generic implementation of the API verbs; kinds/ declares the kinds, domain/ holds their rules
      v
    storage/      revisioned key-value stores, and the in-memory view that serves reads and watches

Beside the path: `subresources/` implements the product's own endpoints, `signin/` is how people get a credential,
`controllers/` reconciles, `upstream/` connects to remote clusters, `agent/` is the direct endpoint next to a cluster,
`runner/` runs workspaces on its machine, and `links/` is the protocol between it and the server. `client/` is the
Python client, `cli/` the command line, `console/` the web console. `features/` declares what each feature of the
product adds, and `app/` joins them, from `settings/`. `core/` holds the types that all packages share. `__main__` is
the program; `exec_credential` answers kubectl without loading the rest.
"""

__version__ = "0.2.0"
