"""HTTP/1.1 and WebSocket client for the API servers of connected clusters.

kubeconfig -> ClusterEndpoint -> Upstream (connection pool, limits) -> Response, UpstreamWebSocket or UpstreamError

    clusters.py                    the Upstreams of each Cluster and VirtualClusterInstance
    upstream.py, access.py         `Upstream`, and its values: endpoint, limits, request
    pool.py, fair_share.py         connection pool; limits per user
    connection.py, messages.py     HTTP/1.1 exchanges; responses and request heads
    websocket.py                   WebSocket connections
    dial.py, transport.py          TCP and TLS connections
    address_policy.py              which addresses may be dialed
    kubeconfig.py, errors.py       kubeconfig validation; `UpstreamError` and its subclasses
    kube_client.py, watch.py       Kubernetes client, and list and watch, for controllers
    local_cluster.py               the cluster around this process, and the cluster of a local credential
    object_watch.py                list and watch of one object
"""
