"""Authentication and authorization of HTTP requests.

stages.py          the pipeline stages: authenticate, authorize, and check again while a stream is open
impersonation.py   the `Impersonate-*` headers
"""
