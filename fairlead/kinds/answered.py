"""Declares kinds that are answered and never stored: reviews, and the bodies of subresources.

Those with rules of their own are a `dataclasses.replace` of what these functions return, or a `Kind` written out.
"""

from collections.abc import Mapping
from dataclasses import replace

from fairlead.registry.kind import MANAGEMENT_GROUP, Column, Kind, Sensitivity
from fairlead.registry.schema import Schema


def create_only_kind(
    name: str,
    description: str,
    fields: Mapping[str, Schema],
    *,
    group: str = MANAGEMENT_GROUP,
    namespaced: bool = False,
    sensitive: tuple[str, ...] = (),
) -> Kind:
    """A kind that is sent with a POST; the response is the object with the result."""
    return Kind(
        name=name,
        plural=f"{name.lower()}s",
        namespaced=namespaced,
        group=group,
        fields=fields,
        description=description,
        verbs=("create",),
        sensitive=sensitive,
        persisted=False,
        builtin=True,
        sensitivity=Sensitivity.NORMAL,
    )


def read_only_kind(name: str, description: str, fields: Mapping[str, Schema]) -> Kind:
    """A kind that is the response to a GET of a subresource."""
    return Kind(
        name=name,
        plural=f"{name.lower()}s",
        namespaced=False,
        fields=fields,
        description=description,
        verbs=("get",),
        persisted=False,
        sensitivity=Sensitivity.NORMAL,
    )


def list_only_kind(name: str, description: str, fields: Mapping[str, Schema], columns: tuple[Column, ...]) -> Kind:
    """A kind whose objects are computed for each list. The columns are the complete table."""
    return replace(read_only_kind(name, description, fields), verbs=("list",), columns=columns, explicit_columns=True)


def component_key_kind(name: str, description: str, fields: Mapping[str, Schema]) -> Kind:
    """The response with the access key of a component, in its field `accessKey`."""
    return replace(
        read_only_kind(name, description, fields), sensitive=("accessKey",), sensitivity=Sensitivity.CREDENTIAL
    )
