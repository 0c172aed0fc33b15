"""Commands that start, install or check a server, and `version`.

- `up`, `serve`, `agent`, `admin`, `install`, `doctor`, `support_bundle`, `completion`, `version`: the commands
- `units`: the systemd units of the server and of the agent
- `event_loop`: event loop, signals and startup errors
- `setting_flags`: flags generated from the settings
"""
