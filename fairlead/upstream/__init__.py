"""Talking to the API servers of connected clusters: how to reach one, and requests, streams and sockets to it.

    kubeconfig -> Access -> Upstream (pool of connections, limits) -> Response, FarSocket, or an UpstreamError

`gateway` hands people's requests on through an Upstream; `controllers` ask things of their own through
`ClusterApi`.
"""
