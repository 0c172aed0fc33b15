"""Commands for clusters, projects, instances, apps and runners.

- `cluster`, `cluster_add`, `cluster_remove`, `cluster_role`, `cluster_status`: connected clusters
- `project`: projects and their members
- `instance`: shared by `space`, `vcluster` and `workspace`
- `kubeconfig`: kubectl contexts for the server and its gateways
- `get`, `apply`, `delete`: objects of any kind; they share `any_kind` and `manifests`
- `app`, `app_instance`, `app_history`: apps, and installed apps
- `runner`: runners; `runner_process`, `runner_options` and `runner_login`: their process on this machine
- `workspace_hold`: keeps a workspace awake
"""
