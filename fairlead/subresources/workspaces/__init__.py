"""Workspaces that run elsewhere: the connections of runners, and the subresources of workspaces that use them.

link_endpoint.py  `runners/<name>/link`: accepts the connection of a runner
hub.py            the connections of all runners to this process, and the streams over them
peers.py          how processes of this server use each other's connections: the contract, and serving it
worker_peers.py   the other workers, over Unix sockets
replica_peers.py  the other replicas, over TLS
replica_leases.py how replicas find each other
relay.py          connects two streams
targets.py        finds the runner of a workspace, and builds the request to it
session.py        a client's WebSocket and the stream to the runner behind it
client_frames.py  the messages on that WebSocket
exchanges.py      requests to a runner with one JSON response, such as tasks, and POST of up and stop
exec.py           runs a command in a workspace; exec_frames.py: its messages, those of `pods/exec`
waking.py         wakes a workspace up for an `up` or a session
access.py         SSH certificates, and the list of ports
downloads.py      responses that are streamed: log and download
credentials.py    the secrets that the runner of a workspace needs, which the server resolves
handlers.py       all handlers

`fairlead/links` has the protocol. Runners decide what an action does; nothing here knows how a workspace is run.
"""
