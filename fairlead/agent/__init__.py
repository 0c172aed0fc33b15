"""The agent: serves the direct endpoint of one cluster, without a hop through the Fairlead server.

    endpoint.py         `DirectEndpoint`: authenticates, authorizes and forwards requests
    tokens.py           `DirectTokenAuthenticator`: verifies direct tokens and resolves their user
    config_cache.py     `ConfigCache`: the agent's configuration from the server, cached on disk
    control_plane.py    client for the agent subresources of the server
    reports.py          queue of audit events and token usage for the server

All decisions use the cached configuration, so the endpoint works while the server is down. `app/agent.py` wires it up;
`gateway/proxy.py` forwards requests, as for the server's own gateways.
"""
