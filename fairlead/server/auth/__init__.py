"""Authentication and authorization of HTTP requests.

stages.py          the pipeline stages: authenticate, authorize, and check again while a stream is open
impersonation.py   the `Impersonate-*` headers
login.py           password login and logout below `/auth`
sso.py             the endpoints of single sign-on
oauth.py           `POST /auth/token`; oauth_cli.py, oauth_device.py and token_exchange.py have its grant types
aggregated_authorization.py  requests that a kube-apiserver forwards
"""
