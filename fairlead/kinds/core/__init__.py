"""Kinds of Kubernetes' core group, events.k8s.io and coordination.k8s.io.

- `namespace`, `config_data` (ConfigMap and Secret), `service_account`
- `event`, `event_v1`: the same Events in both API groups
- `lease`: Lease
- `pod_service`: Pod and Service, which are always empty
"""
