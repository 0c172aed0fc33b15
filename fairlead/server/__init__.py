"""The HTTP API server, generic over kinds: everything between the socket and the registry.

http/       the ASGI application, request bodies, the stage pipeline, connections and memory limits
auth/       authentication, impersonation and authorization stages; login and OIDC discovery
flow/       flow control: priority levels and fair queueing
api/        the Kubernetes API: routing, verbs, content negotiation, watch streams, `Status` errors
discovery/  discovery documents, OpenAPI and health checks
audit/      the audit log
metrics/    request metrics and the Prometheus endpoint

`app/http.py` assembles the pipeline. Subresources and virtual kinds of the product are in `fairlead/subresources`.
"""
