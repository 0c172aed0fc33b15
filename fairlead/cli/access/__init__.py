"""Commands for logins, credentials and permissions.

- `login`, `logout`, `context`, `whoami`: logins stored on this machine
- `key`, `key_create`, `scope_flags`: access keys and their scopes
- `token`: exec credentials for kubectl, direct tokens for clusters
- `user`, `team`: users, passwords and teams
- `permissions`: `who-can` and `key explain`
"""
