"""Kinds of Kubernetes' core group, events.k8s.io, coordination.k8s.io and apiextensions.k8s.io.

- `namespace`, `config_data` (ConfigMap and Secret), `service_account`
- `event`, `event_v1`: the same Events in both API groups
- `lease`: Lease
- `server_objects`: the Secrets and Leases that the server keeps for itself
- `resource_count`: ResourceCount
- `empty_kinds`: Pod, Service and CustomResourceDefinition, which are always empty
"""
