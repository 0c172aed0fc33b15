"""SSH to workspaces: no open port, no key in any home.

actions.py     the actions `ssh`, `ssh-endpoint` and `ports` of the runner
endpoint.py    chooses how a connection is served: by the sshd of the image, or by a process of the runner
host_keys.py   the host key of each workspace
inside.py      what the image has: a user, a shell, sshd, sftp-server
image_sshd.py  runs the image's `sshd -i` inside the workspace
process.py     the process that serves a workspace whose image has no sshd, as the runner sees it
server.py      the main program of that process: an SSH server (asyncssh)
stopping.py    whether a session has ended because its workspace has stopped
channels.py    its channels: commands, terminals, sftp and forwarded ports
"""
