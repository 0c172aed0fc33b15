"""Engines: what a workspace runs in. `contract.py` is all that the runner knows of them.

contract.py     `Engine`, and the values that the runner and its engines exchange
devcontainer/   dev containers, with podman
clone_strategies.py   how much of the history of a repository is cloned
sessions.py     processes with pipes or a terminal, which end as a whole
masking.py      secrets in logs
"""
