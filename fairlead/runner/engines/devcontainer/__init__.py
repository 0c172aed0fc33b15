"""The engine for dev containers: the CLI of the dev container project, with podman.

engine.py           `DevcontainerEngine`: the contract's methods
"""
