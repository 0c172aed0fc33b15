"""Quotas on what is stored, and the locks of what is counted.

enforcement.py    the limits of users and namespaces, in objects and bytes
usage.py          what they have stored
charged_user.py   whom an object counts for
write_locks.py    writers of one subject conflict in the store
"""
