"""Authentication and authorization of HTTP requests.

stages.py                    the pipeline stages: authenticate, authorize, and check again while a stream is open
aggregated_authorization.py  the same for requests that another kube-apiserver forwards, which decides itself if asked
impersonation.py             the `Impersonate-*` headers
"""
