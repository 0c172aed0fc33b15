"""HTTP/1.1 and WebSocket client for the API servers of connected clusters.

kubeconfig -> ClusterEndpoint -> Upstream (connection pool, limits) -> Response, UpstreamWebSocket or UpstreamError

    clusters.py                    the Upstreams of each Cluster and VirtualClusterInstance
    upstream.py, access.py         `Upstream`, and its values: endpoint, limits, request
    pool.py, fair_share.py         connection pool; limits per user
    connection.py, messages.py     HTTP/1.1 exchanges; responses and request heads
    websocket.py                   WebSocket connections
    dial.py, transport.py          TCP and TLS connections
    http_proxy.py                  `proxy-url` of a kubeconfig, and CONNECT
    tunnel.py, tunnel_pods.py      the same through a connected cluster, for virtual clusters; their pods
    port_forward.py                many connections to ports of a pod in one WebSocket
    linked.py, stream_transport.py the same through the agent of a cluster that dials out
    local_gateway.py               a local API server that stands for a cluster, for other programs
    address_policy.py              which addresses may be dialed
    kubeconfig.py, errors.py       kubeconfig validation; `UpstreamError` and its subclasses
    credential.py                  until when a credential is valid, and whose it is
    kube_client.py, watch.py       Kubernetes client, and list and watch, for controllers
    local_cluster.py               the cluster around this process, and the cluster of a local credential
    object_watch.py                list and watch of one object
"""
