"""Controllers of instances: template resolution, spaces and virtual clusters in connected clusters.

- `templates.py`: resolves templates; `status.py` derives conditions and phase; `prerequisites.py`: project and cluster
- `workspace_trust.py`: what the template of a workspace may not decide; `workspace_environment.py`: its environment
- `spaces.py`, `virtual_clusters.py`: the controllers that write to remote clusters, with the following parts:
- `remote_instance.py`: reads and writes instances, backoff, cleanup; `cluster_access.py`: connections to clusters
- `namespace_contents.py`: applies everything of an instance: `remote_namespace.py` (namespace and bindings),
  `remote_objects.py` (template objects), `role_bindings.py` (who gets which role), `remote_names.py` (names and labels)
- `confinement.py`: which template is applied with whose permissions
- `drift.py`: detects and reports drift, with `applied_objects.py` and the rate limits of `resync_rate.py`
- `remote_errors.py`: errors that become conditions
- `vcluster_release.py`: release, probe result and user access of a virtual cluster
"""
