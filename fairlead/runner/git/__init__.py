"""Credentials for the `git` of sessions, which are never on the disk of a workspace.

service.py  a socket inside each workspace, and the requests to the server behind it
cache.py    what is said on that socket: the protocol of `git credential-cache` (pure)
"""
