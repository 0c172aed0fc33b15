"""Commands for logins, credentials and permissions.

- `login`, `context`, `whoami`: logins stored on this machine; `context` also has `logout`
- `login_target`, `browser_login`: the flags of `login`, and logins through the console
- `token`: `credential`, the exec credential plugin of kubectl; direct tokens for clusters
- `cluster_credential`: the credential plugin of ClusterProfiles
- `key`, `key_create`: access keys; `keys`: their scopes, and when they expire
- `user`, `team`: users, passwords and teams
- `permissions`: `who-can` and `key explain`
- `audit`: lists and follows the audit log, and explains one request
- `config`: single settings of the Config, and where they come from
- `sso`: who users of identity providers would be
- `trust`: which tokens of other systems are exchanged for access keys
"""
