"""Controllers: reconcile stored objects with the desired state, in this server and in remote clusters.

- `runtime/`: the reconcile loop, watches, backoff, leader election, informers for remote clusters
- `core/`: Kubernetes' own controllers: garbage collector, namespaces, Event TTL, ClusterRole aggregation
- `access/`: expiry of access keys, team membership
- `projects/`: project namespaces, quota status, ordered deletion
- `clusters/`: connected clusters: probes, status, binding of administrators, finalizer
- `instances/`: templates, spaces and virtual clusters, which live in remote clusters
- `helm/`: Helm releases of virtual clusters, apps and templates: charts are downloaded, and helm is run
- `apps/`: installed apps, and the charts and apps of templates
- `workspaces/`: workspaces and the runners that they are scheduled to

A controller has `watches`, `keys_for` and `reconcile` (`runtime/loop.py`). `app/background.py` runs those that
the features add.
"""
