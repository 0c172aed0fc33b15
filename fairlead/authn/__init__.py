"""Authentication: maps the credential of a request to a User. `signin/` is how people get a credential.

access_keys     authenticates access keys; last_used records their last use, key_rotation replaces their values
bootstrap       the first administrator, whose key expires, and the secret behind the digests of access keys
client_certificates  users of client certificates; request_headers those that a front proxy names
component_keys  keys of runners and cluster agents
credentials     extracts the bearer token or the session cookie from a request
direct_tokens   verifies JWTs for direct access to clusters
server_keys     keys of the server in Secrets: signing_keys, ssh_authority, replica_authority
principals      users, teams and service accounts with their groups
sign_on_policy  which users and sessions of identity providers count; sign_on_settings reads the Config for it
service_accounts  tokens of service accounts (`kubectl create token`)
token_issuer    issues direct tokens; signing_keys stores their keys
"""

from collections.abc import Callable

from fairlead.core.call import Call
from fairlead.core.user import User

Authenticator = Callable[[Call], User | None]
"""Returns the user, or None if the call has no credential of this type. Raises Unauthorized for an invalid one."""
