"""SSH to workspaces: no open port, no key in any home.

actions.py      the actions `ssh`, `ssh-endpoint` and `ports` of the runner
endpoint.py     chooses how a connection is served: by the sshd of the image, or by a process of the runner
host_keys.py    the host key of each workspace
inside.py       what the image has: a user, a shell, sshd, sftp-server
image_sshd.py   runs the image's `sshd -i` inside the workspace
stopping.py     whether a session has ended because its workspace has stopped
limits.py       how many channels may be open, and how fast they may come
variables.py    which variables of a client a session gets

For a workspace whose image has no sshd, in the runner:

process.py      the process that serves it
groups.py       its control group
requests.py     what that process may request: commands and ports of its workspace
pumps.py        makes descriptors of streams that are none

In that process:

server.py       its main program: an SSH server (asyncssh)
confinement.py  what it gives up before it serves anyone
channels.py     its channels: commands, terminals, sftp and forwarded ports
listening.py    its sockets inside: `ssh -R`, and forwarded agents
access.py       its requests

messages.py has what the two tell each other.
"""
