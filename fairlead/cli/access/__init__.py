"""Commands for logins, credentials and permissions.

- `login`, `logout`, `context`, `whoami`: logins stored on this machine
- `login_target`, `browser_login`: the flags of `login`, and logins through the console
- `credential`: the exec credential plugin of kubectl
- `key`, `key_create`, `scope_flags`: access keys and their scopes
- `key_expiry`: when an access key expires
- `token`: exec credentials for kubectl, direct tokens for clusters
- `user`, `team`: users, passwords and teams
- `permissions`: `who-can` and `key explain`
- `audit`: lists and follows the audit log, and explains one request
- `config`, `config_text`, `config_origin`: single settings of the Config, and where they come from
- `sso`: who users of identity providers would be
- `trust`, `trust_rules`, `trust_config`: which tokens of other systems are exchanged for access keys
"""
