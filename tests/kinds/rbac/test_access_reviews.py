"""kinds/rbac/access_reviews.py: validation of access reviews, with the messages of kube-apiserver."""

from typing import Any

import pytest

from fairlead.core.objects import Object
from fairlead.core.user import User
from fairlead.kinds.access.whoami import SELF, SELF_SUBJECT_REVIEW, TOKEN_REVIEW
from fairlead.kinds.rbac.access_reviews import (
    EXPLAINED_REVIEW,
    EXPLAINED_SELF_REVIEW,
    LOCAL_SUBJECT_ACCESS_REVIEW,
    SELF_SUBJECT_ACCESS_REVIEW,
    SELF_SUBJECT_RULES_REVIEW,
    SUBJECT_ACCESS_REVIEW,
)
from fairlead.registry.kind import Change, Kind

REVIEWS = (
    SELF_SUBJECT_ACCESS_REVIEW,
    SUBJECT_ACCESS_REVIEW,
    LOCAL_SUBJECT_ACCESS_REVIEW,
    SELF_SUBJECT_RULES_REVIEW,
    EXPLAINED_SELF_REVIEW,
    EXPLAINED_REVIEW,
)
EVERY_KIND = (*REVIEWS, SELF, SELF_SUBJECT_REVIEW, TOKEN_REVIEW)
ACCESS_REVIEWS = [kind for kind in REVIEWS if kind is not SELF_SUBJECT_RULES_REVIEW]
GET = {"verb": "get", "resource": "apps", "group": "management.service.sh"}
GET_IN_NAMESPACE = {**GET, "namespace": "demo"}
PATH = {"path": "/x", "verb": "get"}
ONE_OF = "exactly one of nonResourceAttributes or resourceAttributes must be specified"


def find_messages(kind: Kind, spec: Object | None = None, **metadata: Any) -> list[str]:
    obj: Object = {"metadata": metadata}
    if spec is not None:
        obj["spec"] = spec
    change = Change("create", kind, User("ada"), None, obj)
    kind.default(change)
    return [str(problem) for problem in kind.check(change)]


@pytest.mark.parametrize("kind", EVERY_KIND, ids=lambda kind: f"{kind.group}-{kind.name}")
def test_reviews_support_only_create(kind: Kind) -> None:
    assert (kind.persisted, kind.verbs, kind.builtin) == (False, ("create",), True)


@pytest.mark.parametrize("kind", ACCESS_REVIEWS, ids=lambda kind: f"{kind.group}-{kind.name}")
def test_exactly_one_kind_of_attributes_is_required(kind: Kind) -> None:
    subject = {"user": "x"} if "user" in kind.fields["spec"]["properties"] else {}
    assert find_messages(kind, {**subject, "resourceAttributes": GET_IN_NAMESPACE}, namespace="demo") == []
    for spec in (subject, {**subject, "resourceAttributes": None, "nonResourceAttributes": None}):
        assert find_messages(kind, spec) == [f"spec: Invalid value: null: {ONE_OF}"]
    messages = find_messages(
        kind, {**subject, "resourceAttributes": GET_IN_NAMESPACE, "nonResourceAttributes": {"path": "/x"}}
    )
    assert messages[0] == f'spec: Invalid value: {{"Path":"/x","Verb":""}}: {ONE_OF}'


def test_an_empty_review_is_rejected() -> None:
    assert find_messages(SELF_SUBJECT_ACCESS_REVIEW) == [f"spec: Invalid value: null: {ONE_OF}"]


def test_empty_attributes_count_as_attributes() -> None:
    assert find_messages(SELF_SUBJECT_ACCESS_REVIEW, {"resourceAttributes": {}}) == []


def test_a_user_or_group_is_required() -> None:
    expected = ['spec.user: Invalid value: "": at least one of user or group must be specified']
    for kind in (SUBJECT_ACCESS_REVIEW, EXPLAINED_REVIEW):
        assert find_messages(kind, {"resourceAttributes": GET}) == expected
        assert find_messages(kind, {"resourceAttributes": GET, "user": "", "groups": []}) == expected
        assert find_messages(kind, {"resourceAttributes": GET, "groups": ["g"]}) == []


def test_an_access_key_excludes_a_user() -> None:
    assert find_messages(EXPLAINED_REVIEW, {"resourceAttributes": GET, "accessKey": "k"}) == []
    (problem,) = find_messages(EXPLAINED_REVIEW, {"resourceAttributes": GET, "accessKey": "k", "user": "x"})
    assert problem == "spec.accessKey: Forbidden: the subject is derived from the key; leave out user"


def test_metadata_must_be_empty() -> None:
    spec = {"resourceAttributes": GET}
    assert find_messages(SELF_SUBJECT_ACCESS_REVIEW, spec, name="x") == [
        'metadata: Invalid value: {"name":"x"}: must be empty'
    ]
    assert find_messages(SELF_SUBJECT_ACCESS_REVIEW, spec, managedFields=[{"manager": "kubectl"}]) == []


def test_a_local_review_must_match_its_namespace() -> None:
    def review(namespace: str | None) -> list[str]:
        attributes = GET if namespace is None else {**GET, "namespace": namespace}
        spec = {"user": "x", "resourceAttributes": attributes}
        return find_messages(LOCAL_SUBJECT_ACCESS_REVIEW, spec, namespace="demo")

    path, reason = "spec.resourceAttributes.namespace", "must match metadata.namespace"
    assert review("demo") == []
    assert review("other") == [f'{path}: Invalid value: "other": {reason}']
    assert review(None) == [f'{path}: Invalid value: "": {reason}']


def test_a_local_review_rejects_non_resource_attributes() -> None:
    spec = {"user": "x", "nonResourceAttributes": PATH}
    assert find_messages(LOCAL_SUBJECT_ACCESS_REVIEW, spec, namespace="demo") == [
        'spec.nonResourceAttributes: Invalid value: {"Path":"/x","Verb":"get"}: disallowed on this kind of request'
    ]


def test_the_token_of_a_review_is_never_in_a_response() -> None:
    assert TOKEN_REVIEW.sensitive == TOKEN_REVIEW.write_only == ("spec.token",)
