"""ProjectSecret and SharedSecret: credentials by key, with an owner and access entries.

Reading one requires the verb `get`, using one in an instance requires `use`. A ProjectSecret is for the instances of
its project; a SharedSecret is shared beyond its namespace by access entries.
"""

from collections.abc import Iterable

from fairlead.core.objects import Object, get_path
from fairlead.kinds.core.config_data import BYTES, MAX_DATA_BYTES, decoded_size, key_problems
from fairlead.kinds.fields import (
    CATEGORY,
    CONDITIONS,
    OBSERVED_GENERATION,
    owned_spec,
    owner_name,
    owner_problems,
)
from fairlead.registry import limits
from fairlead.registry.kind import Change, Column, Kind, Problem, Sensitivity
from fairlead.registry.schema import mapping, obj


def secret_kind(name: str, plural: str, description: str) -> Kind:
    return Kind(
        name=name,
        plural=plural,
        namespaced=True,
        fields={
            "spec": owned_spec(
                "The credentials, and access to them.",
                data=mapping(
                    BYTES,
                    "Base64-encoded credentials by key. Keys consist of letters, digits, `-`, `_` and `.`.",
                    max_properties=limits.DATA_KEYS,
                ),
            ),
            "status": obj(
                "Observed state of the secret. Written by the server.",
                conditions=CONDITIONS,
                observedGeneration=OBSERVED_GENERATION,
            ),
        },
        description=description,
        categories=(CATEGORY,),
        status_subresource=True,
        columns=(
            Column("Data", _count_keys, type="integer", description="Number of keys."),
            Column("Owner", owner_name, description="Owning user or team."),
            Column("Display Name", "spec.displayName", description="Human-readable name.", wide=True),
        ),
        selectable=("spec.owner.user",),
        sensitive=("spec.data",),
        has_access_entries=True,
        check=_check,
        sensitivity=Sensitivity.SECRET,
    )


def _check(change: Change) -> Iterable[Problem]:
    yield from owner_problems(change.spec)
    data = change.spec.get("data") or {}
    yield from key_problems("spec.data", data)
    if sum(decoded_size(value) for value in data.values() if value) > MAX_DATA_BYTES:
        yield Problem.too_long("spec.data", MAX_DATA_BYTES)


def _count_keys(each: Object) -> int:
    return len(get_path(each, "spec.data") or ())


PROJECT_SECRET = secret_kind("ProjectSecret", "projectsecrets", "Credentials that a project's instances can use.")


SHARED_SECRET = secret_kind(
    "SharedSecret", "sharedsecrets", "Credentials that are shared with users and teams by access entries."
)
