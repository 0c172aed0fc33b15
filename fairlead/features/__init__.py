"""The features of the product. Each declares in one place what it adds to the server: handlers of subresources,
endpoints, admission rules, controllers, background tasks, metrics and health checks.

A feature is a function `build_x_feature`, which takes the `Services` that all features share and returns a `Feature`.
`app/features.py` lists these functions in order. The parts themselves are in the packages below: a handler in
`subresources/`, a rule in `admission/`, a controller in `controllers/`.

contract.py           Feature, Services and LeaderServices
auth.py               authentication and authorization, as features use them
dynamic_config.py     the settings that can change at run time, from the Config
core_objects.py       namespaces, Secrets and Leases of the server, owner references, garbage collection, Events
projects.py           projects, their namespaces, allow lists and quotas
permissions.py        users and teams, access reviews, whoami, roles, who may grant what
access_keys.py        access keys: creation, limits, rotation, expiry, last use
logins.py             logins with a password and of the command line, logout, the profile of a user
single_sign_on.py     logins with an OpenID provider
workload_identity.py  access keys for workloads with a token of a cluster or another provider
tokens.py             direct tokens, and tokens of service accounts
clusters.py           connected clusters, the gateways to them, their agents; the cluster that the server runs in
instances.py          spaces and virtual clusters, their templates, the move to another project
apps.py               apps and their instances
workspaces.py         workspaces, and the runners on which they run
audit.py              the audit log, and the search in it
metrics.py            the metrics of the server itself
settings_list.py      every setting with its value and source, for the console
console.py            the web console: its files, and where they are served
"""
