"""Commands for clusters, projects, instances, apps and runners.

- `cluster`, `cluster_add`, `cluster_role`, `cluster_status`: connected clusters; `cluster_agent`: the manifest of an
  agent that dials out; `cluster_export`: Secrets and ClusterProfiles for GitOps tools
- `project`: projects, their members, and what they use of their quotas
- `cluster_instance`: spaces and virtual clusters; `instance`: shared with `workspace` and `app_instance`
- `vcluster_import`: virtual clusters that already run
- `instance_sleep`: puts these to sleep and wakes them; `instance_hold`: keeps them, and workspaces, awake;
  `instance_share`: lets users and teams use them
- `kubeconfig`: kubectl contexts for the server and its gateways
- `get`, `apply`, `delete`: objects of any kind; they share `any_kind`
- `app`, `app_instance`: apps, and installed apps
- `runner`: runners; `runner_process` and `runner_options`: their process on this machine
- `workspace_ssh`, `ssh_files`, `workspace_ports`: SSH to a workspace, and its ports
- `workspace_move`: another runner for a workspace
- `workspace_snapshots`: what replaced containers of a workspace had
- `workspace_browser`: ports of a workspace in a browser
- `demo`, `demo_fleet`: fills a server with a small fleet to look at
"""
