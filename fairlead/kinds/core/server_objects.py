"""The Secrets and Leases that hold the server's own keys and records, all in the system namespace.

A user who controls one of these keys can sign in as another user, or be taken for a replica. So only the server writes
them (`admission/protected_fields.py`), and a reader uses one only if `is_own` says that the server created it: a type
with this prefix is reserved for the server and cannot be changed, so a Secret that another user has put in the place
of a deleted one is recognised.
"""

from dataclasses import dataclass

from fairlead.core.objects import Object, labels_of, metadata

SERVER_OWNED_TYPE_PREFIX = "service.sh/"
"""Prefix of the types of Secrets that only the server creates."""


@dataclass(frozen=True, slots=True)
class ServerSecret:
    """A Secret of the server with a fixed name."""

    name: str

    @property
    def type(self) -> str:
        return f"{SERVER_OWNED_TYPE_PREFIX}{self.name}"

    def is_own(self, secret: Object) -> bool:
        """Whether the server has created this Secret."""
        return bool(secret.get("type") == self.type)


SIGNING_KEYS = ServerSecret("signing-keys")
SIGN_ON_KEYS = ServerSecret("sign-on-keys")
SSH_AUTHORITY = ServerSecret("ssh-authority")
REPLICA_AUTHORITY = ServerSecret("replica-authority")
SERVER_SECRETS = (SIGNING_KEYS, SIGN_ON_KEYS, SSH_AUTHORITY, REPLICA_AUTHORITY)

PASSWORD_SECRET_TYPE = f"{SERVER_OWNED_TYPE_PREFIX}password"
"""The type of Secrets with password hashes. They are named after their users."""

CLUSTER_AGENT_SECRET_TYPE = f"{SERVER_OWNED_TYPE_PREFIX}cluster-agent"
"""The type of Secrets with the public keys of the agent of a cluster that it connects to, and of its join token."""


def cluster_agent_secret_name(cluster: str) -> str:
    return f"link-{cluster}"


MANAGED_LABEL, MANAGED_VALUE = "service.sh/managed", "fairlead"
"""The label of objects that the server has created. Others cannot set it (`admission/protected_fields.py`)."""

CONTROLLERS_LEASE = "fairlead-controllers"
REPLICA_LEASE_PREFIX = "fairlead-replica-"
CONSUMED_LEASE_PREFIX = "consumed-"
EXCHANGED_LEASE_PREFIX = "exchanged-"
SERVER_LEASE_PREFIXES = (REPLICA_LEASE_PREFIX, CONSUMED_LEASE_PREFIX, EXCHANGED_LEASE_PREFIX)
"""Leases by which replicas find each other, and that record tokens which are valid once."""


def is_server_owned(secret: Object) -> bool:
    return str(secret.get("type", "")).startswith(SERVER_OWNED_TYPE_PREFIX)


def is_managed(obj: Object) -> bool:
    """Whether the server has created an object, for its own use or in another's project."""
    return bool(labels_of(obj).get(MANAGED_LABEL) == MANAGED_VALUE)


def is_generated_kubeconfig(secret: Object, uid: str) -> bool:
    """Whether the server has stored the kubeconfig of the virtual cluster with this uid in a Secret. The owner
    reference alone does not say it: users who may create Secrets in the project may set it."""
    owners = metadata(secret).get("ownerReferences") or ()
    return is_managed(secret) and any(each.get("uid") == uid for each in owners)


def is_server_lease(name: str) -> bool:
    return name == CONTROLLERS_LEASE or name.startswith(SERVER_LEASE_PREFIXES)
