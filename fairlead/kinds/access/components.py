"""Components of the platform that sign in with a key that the server makes for them: runners, and agents of clusters.

Each belongs to an object and goes with it. `authn/component_keys.py` makes and keeps the keys, `authz/component_access.py`
tells whose key it is that somebody came with.
"""

import hashlib
from dataclasses import dataclass

KEY_ANNOTATION = "service.sh/access-key"
"""On the Secret of a component: the name of the access key whose value it holds."""

LONGEST_LABEL = 63


@dataclass(frozen=True, slots=True)
class Component:
    """One sort of them. `plural` and `owner` are the kind that they belong to, `word` is what one is called."""

    plural: str
    owner: str
    word: str
    label: str
    """On access keys and their Secrets: the object that they are for."""
    group: str
    """The group that every one of this sort is in, for roles that are bound to all of them."""

    @property
    def subject_prefix(self) -> str:
        """What the names of their identities begin with. Users and teams cannot be called so."""
        return f"service:{self.word}:"

    @property
    def secret_type(self) -> str:
        return f"service.sh/{self.word}-key"

    def subject(self, name: str) -> str:
        return f"{self.subject_prefix}{name}"

    def label_value(self, name: str) -> str:
        """A name as a label can hold it: some kinds have longer ones."""
        return name if len(name) <= LONGEST_LABEL else hashlib.sha256(name.encode()).hexdigest()[:LONGEST_LABEL]

    def key_secret(self, name: str) -> str:
        """The name of the Secret that holds a component's key."""
        return f"{self.word}-{self.label_value(name)}-key"
