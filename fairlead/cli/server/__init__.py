"""Commands that start, install or check a server, and commands that work on its files and stores without it.

- `up`, `serve`, `agent`, `admin`, `install`, `completion`: the commands
- `doctor`: checks this machine and the installation on it; `support-bundle` collects what helps to understand it
- `backup`: `backup`, `restore` and `store copy`
- `encryption_keys`: the keys for encryption at rest (`encryption-key`)
- `export`: CustomResourceDefinitions of the management kinds
- `units`: the systemd units of the server and of the agent
- `event_loop`: event loop, signals and startup errors
- `setting_flags`: flags generated from the settings
"""
