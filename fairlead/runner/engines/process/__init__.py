"""The engine for plain processes: for trying things out on one's own machine.

engine.py    `ProcessEngine`: a folder per workspace, and processes of the runner's own user

Nothing separates such a workspace from its machine. The runner offers this engine only if its operator enables it.
"""
