"""Commands that start a server, and `version`.

- `up`, `serve`, `agent`, `version`: the commands
- `event_loop`: event loop, signals and startup errors
- `setting_flags`: flags generated from the settings
- `admin_kubeconfig`: the kubeconfig of the first administrator
"""
