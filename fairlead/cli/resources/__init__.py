"""Commands for clusters, projects, instances, apps and runners.

- `cluster`, `cluster_add`, `cluster_remove`, `cluster_role`, `cluster_status`: connected clusters
- `project`: projects and their members
- `project_usage`: what a project uses of its quotas
- `instance`: shared by `space`, `vcluster` and `workspace`
- `kubeconfig`: kubectl contexts for the server and its gateways
- `get`, `apply`, `delete`: objects of any kind; they share `any_kind` and `manifests`
- `app`, `app_instance`, `app_history`: apps, and installed apps
- `runner`: runners; `runner_process`, `runner_options` and `runner_login`: their process on this machine
- `runner_delete`: deletes a runner, unless it has workspaces
- `workspace_hold`: keeps a workspace awake
- `workspace_ssh`, `ssh_files`, `workspace_ports`: SSH to a workspace, and its ports
- `demo`, `demo_fleet`: fills a server with a small fleet to look at
"""
