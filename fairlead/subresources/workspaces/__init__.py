"""Workspaces that run elsewhere: the connections of runners, and the subresources of workspaces that use them.

hub.py            the connections of all runners to this process, and the streams over them
peers.py          how processes of this server use each other's connections: the contract, and serving it
worker_peers.py   the other workers, over Unix sockets
replica_peers.py  the other replicas, over TLS
replica_leases.py how replicas find each other
targets.py        finds the runner of a workspace, and builds the request to it
session.py        a client's WebSocket with its messages, and the stream to the runner behind it
exchanges.py      requests to a runner with one JSON response, such as tasks, POST of up and stop, SSH certificates
                  and the list of ports
moves.py          moves a workspace to another runner
exec.py           runs a command in a workspace; its messages are those of `pods/exec`
waking.py         wakes a workspace up for an `up` or a session
downloads.py      responses that are streamed: log and download
credentials.py    the secrets that the runner of a workspace needs, which the server resolves
git_secrets.py    the project secrets with credentials for Git, and for which repositories each of them is
project_secrets.py   what both of these need to know of a project secret, read once
registry_secrets.py  the project secrets with credentials for registries of images
handlers.py       all handlers, and `runners/<name>/link`, which accepts the connection of a runner

`fairlead/links` has the protocol. Runners decide what an action does; nothing here knows how a workspace is run.
"""
