"""The agent of one cluster: dials out and carries requests of the server, and serves direct tokens without it.

    sessions.py         `AgentSessions`: joins, keeps sessions with the server, replaces its key
    identity.py         its keys, in a file or in a Secret of the cluster
    requests.py         `RequestService`: carries requests to the cluster

The direct endpoint, without a hop through the server:

    endpoint.py         `DirectEndpoint`: authenticates, authorizes and forwards requests
    tokens.py           `DirectTokenAuthenticator`: verifies direct tokens and resolves their user
    config_cache.py     `ConfigCache`: the agent's configuration from the server, cached on disk
    control_plane.py    client for the agent subresources of the server
    reports.py          queue of audit events and token usage for the server

All decisions use the cached configuration, so the endpoint works while the server is down. `app/agent.py` wires it up;
`gateway/proxy.py` forwards requests, as for the server's own gateways.
"""
