"""Controllers of instances: template resolution, spaces and virtual clusters in connected clusters.

- `templates.py`: resolves templates; `workspace_templates.py`: what differs for workspaces
- `spaces.py`, `virtual_clusters.py`: the controllers that write to remote clusters, each a list of steps to Ready
- `instance_reconciler.py`: what these, installed apps and deployed runners share: runs the steps, writes the status,
  retries, cleans up
- `prerequisites.py`: project and cluster of an instance, and what blocks it; `status.py` derives conditions and phase
- `namespace_contents.py`: the namespace of an instance with all that is in it: `remote_namespace.py` (itself, its name
  and its labels), `remote_objects.py` (template objects), `role_bindings.py` (who gets which role)
- `discovery.py`: which kinds a cluster serves, and the paths of their objects
- `confinement.py`: which template is applied with whose permissions
- `drift.py`: detects and reports drift, with the watches of `remote_informers.py` and the limits of `resync_rate.py`
- `sleep.py`: writes who sleeps and wakes; `sleep_step.py`: the step that does it, with `sleeping_workloads.py`;
  `stale_leases.py`: lets the controllers in a woken virtual cluster begin at once
- `cluster_access.py`: connections to clusters; `remote_errors.py`: errors that become conditions
- `virtual_cluster_release.py`: chart and kubeconfig of a virtual cluster; `virtual_cluster_access.py`: its users;
  `access_point.py`: its ingress; `inner_objects.py`: the objects of its template inside; `full_reconciles.py`: when a
  probe is enough; `import_sources.py`: where an imported one runs
"""
