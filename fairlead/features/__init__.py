"""The features of the product. Each module declares in one place what its feature adds to the server: handlers of
subresources, endpoints, admission rules, controllers, background tasks, metrics and health checks.

A module has one function `build_x_feature`, which takes the `Services` that all features share and returns a `Feature`.
`app/features.py` lists these functions in order. The parts themselves are in the packages below: a handler in
`subresources/`, a rule in `admission/`, a controller in `controllers/`.

contract.py           Feature, Services and LeaderServices
auth.py               authentication and authorization, as features use them
dynamic_config.py     the settings that can change at run time, from the Config
core_objects.py       namespaces, Secrets and Leases of the server, owner references, garbage collection, Events
projects.py           projects, their namespaces, allow lists and quotas
users.py              users and teams
access_keys.py        access keys: creation, limits, rotation, expiry, last use
single_sign_on.py     logins with an OpenID provider
workload_identity.py  access keys for workloads with a token of a cluster or another provider
passwords.py          logins with a password, logout, the profile of a user
cli_logins.py         logins of the command line: OAuth with a browser or with the code of a device
permissions.py        access reviews, whoami, roles, who may grant what
direct_tokens.py      tokens for the direct endpoints of clusters, and the keys to verify them
service_accounts.py   tokens of service accounts
clusters.py           connected clusters and the gateways to them; the cluster that the server runs in
agents.py             the agents of clusters: keys, configuration, reports
instances.py          spaces and virtual clusters
apps.py               apps and their instances
templates.py          templates of instances
workspaces.py         workspaces, and the runners on which they run
migration.py          moving a virtual cluster to another project
audit.py              the audit log, and the search in it
metrics.py            the metrics of the server itself
console.py            the web console
"""
