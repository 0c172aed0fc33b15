"""Platform components that authenticate with server-issued access keys: runners and cluster agents.

A component's key is owned by its Runner or Cluster and is deleted with it. `authn/component_keys.py` issues the keys,
`authz/component_access.py` authorizes the components.
"""

import hashlib
from dataclasses import dataclass

KEY_ANNOTATION = "service.sh/access-key"
"""Annotation on a component's Secret: the name of the access key whose value it contains."""

MAX_LABEL_LENGTH = 63


@dataclass(frozen=True, slots=True)
class Component:
    """A type of component. `plural` and `owner` name the owning kind; `word` is the component's singular."""

    plural: str
    owner: str
    singular: str
    label: str
    """Label on access keys and their Secrets: the name of the owning object."""
    group: str
    """The group that all components of this type are in, for role bindings."""

    @property
    def subject_prefix(self) -> str:
        """Prefix of the components' user names. Users and teams cannot have such names."""
        return f"service:{self.singular}:"

    @property
    def secret_type(self) -> str:
        return f"service.sh/{self.singular}-key"

    def subject(self, name: str) -> str:
        return f"{self.subject_prefix}{name}"

    def label_value(self, name: str) -> str:
        """The name as a label value; a hash of it if it is longer than a label value may be."""
        return name if len(name) <= MAX_LABEL_LENGTH else hashlib.sha256(name.encode()).hexdigest()[:MAX_LABEL_LENGTH]

    def key_secret_name(self, name: str) -> str:
        """Name of the Secret that contains a component's key."""
        return f"{self.singular}-{self.label_value(name)}-key"

    def is_key_secret_name(self, name: str) -> bool:
        return name.startswith(f"{self.singular}-") and name.endswith("-key")
