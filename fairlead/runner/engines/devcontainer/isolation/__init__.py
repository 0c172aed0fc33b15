"""What keeps a workspace apart from the machine and from others: holders, with limits, a disk and a network.

namespaces.py        the program that builds a holder: namespaces with an unprivileged root user
holder.py            a running holder, and how programs run in it
workspace_holder.py  the holders of one workspace
cgroups.py           its control groups
socket_memory.py     ends a workspace whose sockets keep memory that control groups do not count
disk.py              its disk
disk_limits.py       how fast it reads and writes there
ranges.py            its number, from which user ids and addresses follow: given once on the machine
network.py           its network
firewall.py          what networks of workspaces cannot reach
"""
