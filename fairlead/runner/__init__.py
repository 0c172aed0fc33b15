"""The runner: a process that runs workspaces on its machine for a Fairlead server.

engines/    what a workspace runs in: dev containers or plain processes, behind one contract
"""
