"""Signing in: how people and workloads get a credential. `authn/` then authenticates requests with it.

login           password login, logout and the list of login methods, below `/auth`
key_login       logins of a browser with an access key
profile         users/<name>/profile: among others, how users change their password
passwords       verifies, hashes and stores passwords
login_sessions  the access keys that logins issue
oauth           `POST /auth/token`, whose grant types the modules below add
oauth_cli       logins of the command line through the console
oauth_device    those without a browser; device_requests has what waits for a user
cli_logins      the logins behind both; cli_tokens has their rotating values
token_exchange  keys in exchange for tokens of other systems; workload_identity has the rules
oidc            OpenID providers: their metadata and keys, and verification of their tokens
sso             single sign-on with OpenID providers

Features switch these on (`features/logins.py`, `features/single_sign_on.py`, `features/workload_identity.py`).
`server/flow/attempts.py` throttles guesses.
"""
