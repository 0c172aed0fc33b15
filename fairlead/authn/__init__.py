"""Authentication: maps the credential of a request to a User.

access_keys     authenticates access keys; last_used records their last use, key_rotation replaces their values
bootstrap       the first administrator, and the secret behind the digests of access keys
cli_grants      logins of the command line; cli_grants_tokens their values, cli_grants_device those without a browser
first_key       when the key of the first administrator expires
client_certificates  users of client certificates; request_headers those that a front proxy names
host_request_headers  the CA and headers of a front proxy, as a kube-apiserver publishes them
component_keys  keys of runners and cluster agents
credentials     extracts the bearer token or the session cookie from a request
direct_tokens   verifies JWTs for direct access to clusters
login_sessions  keys issued by a login; login_throttle delays logins after failures
oidc            OpenID providers: their metadata and keys, and verification of their tokens
password_store  verifies and sets passwords; password_hash is the hash function
server_keys     keys of the server in Secrets: signing_keys, ssh_authority, replica_authority, sso/encryption
principals      users, teams and service accounts with their groups
service_accounts  tokens of service accounts (`kubectl create token`)
token_issuer    issues direct tokens; signing_keys stores their keys
workload_identity  which tokens of other systems are exchanged for keys; workload_keys issues those keys
"""

from collections.abc import Callable

from fairlead.core.call import Call
from fairlead.core.user import User

Authenticator = Callable[[Call], User | None]
"""Returns the user, or None if the call has no credential of this type. Raises Unauthorized for an invalid one."""
