"""Controllers for the built-in Kubernetes resources.

- `garbage_collector.py`: owner references, Foreground and Orphan deletion; `owner_index.py` is its index
- `namespaces.py`: deletes the content of terminating namespaces
- `event_ttl.py`: deletes old Events
- `role_aggregation.py`: the rules of aggregated ClusterRoles
"""
