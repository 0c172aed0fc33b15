"""The HTTP API server, generic over kinds: everything between the socket and the registry.

pipeline.py the stages before and after each request, in order
fast_reads.py  reads of one object by clients that are known, without the stages
http/       the ASGI application, request bodies, connections and memory limits
auth/       authentication, impersonation and authorization stages
flow/       flow control: priority levels and fair queueing
api/        the Kubernetes API: routing, verbs, content negotiation, watch streams, `Status` errors
discovery/  discovery documents, OpenAPI and health checks
audit/      the audit log
metrics/    request metrics and the Prometheus endpoint
workers/    what must hold across several worker processes

`app/http.py` builds the stages. Subresources and virtual kinds of the product are in `fairlead/subresources`, the
endpoints of logins in `fairlead/signin`.
"""
