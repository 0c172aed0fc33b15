"""Engines: what a workspace runs in. `contract.py` is all that the runner knows of them.

contract.py     `Engine`, and the values that the runner and its engines exchange
devcontainer/   dev containers, with podman
kubernetes/     Pods in a cluster
specification.py what all engines read alike: environments, and how much of the history of a repository is cloned
sessions.py     processes with pipes or a terminal, which end as a whole
process_trees.py finds the processes of sessions among those of a workspace, and signals them
descriptors.py  ends of pipes, terminals and sockets
measurement.py  what processes of a workspace do, in threads for scans whose cost a workspace controls
masking.py      secrets in the output of programs, and logs of that output
records.py      what must be known of workspaces after kill -9: a file for each uid
"""
