"""Reverse proxy to connected clusters, spaces and virtual clusters.

    routes.py       `GatewayHandler`: resolves the gateway path to an Upstream; restricts spaces to their namespace
    activity.py     which requests count as use of a space or virtual cluster, and when its last use is written
    waking.py       holds requests for one that is asleep until it is awake
    proxy.py        `forward`: sends the request, and returns or streams the response
    headers.py      request and response headers, impersonation, and errors as Status
    websocket.py    WebSocket tunnels for exec, attach and port-forward; rejects SPDY

Requests are authorized before they get here (`authz/`). Connections are in `upstream/`. `forward` does not use the
registry, so the agent uses it, too.
"""
