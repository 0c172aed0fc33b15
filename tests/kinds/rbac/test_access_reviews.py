"""What makes no sense in a review, in the words that a kube-apiserver has for it."""

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
ACCESS = [kind for kind in REVIEWS if kind is not SELF_SUBJECT_RULES_REVIEW]
GET = {"verb": "get", "resource": "apps", "group": "management.service.sh"}
HERE = {**GET, "namespace": "demo"}
PATH = {"path": "/x", "verb": "get"}
ONE_OF = "exactly one of nonResourceAttributes or resourceAttributes must be specified"


def complaints(kind: Kind, spec: Object | None = None, **metadata: Any) -> list[str]:
    obj: Object = {"metadata": metadata}
    if spec is not None:
        obj["spec"] = spec
    change = Change("create", kind, User("ada"), None, obj)
    kind.default(change)
    return [str(problem) for problem in kind.check(change)]


@pytest.mark.parametrize("kind", EVERY_KIND, ids=lambda kind: f"{kind.group}-{kind.name}")
def test_they_are_asked_with_a_post_and_nothing_else(kind: Kind) -> None:
    assert (kind.persisted, kind.verbs, kind.builtin) == (False, ("create",), True)


@pytest.mark.parametrize("kind", ACCESS, ids=lambda kind: f"{kind.group}-{kind.name}")
def test_one_kind_of_attributes_is_needed(kind: Kind) -> None:
    who = {"user": "x"} if "user" in kind.fields["spec"]["properties"] else {}
    assert complaints(kind, {**who, "resourceAttributes": HERE}, namespace="demo") == []
    for spec in (who, {**who, "resourceAttributes": None, "nonResourceAttributes": None}):
        assert complaints(kind, spec) == [f"spec: Invalid value: null: {ONE_OF}"]
    both = complaints(kind, {**who, "resourceAttributes": HERE, "nonResourceAttributes": {"path": "/x"}})
    assert both[0] == f'spec: Invalid value: {{"Path":"/x","Verb":""}}: {ONE_OF}'


def test_nothing_at_all_is_no_question() -> None:
    assert complaints(SELF_SUBJECT_ACCESS_REVIEW) == [f"spec: Invalid value: null: {ONE_OF}"]


def test_empty_attributes_are_attributes() -> None:
    assert complaints(SELF_SUBJECT_ACCESS_REVIEW, {"resourceAttributes": {}}) == []


def test_somebody_must_be_meant() -> None:
    nobody = ['spec.user: Invalid value: "": at least one of user or group must be specified']
    for kind in (SUBJECT_ACCESS_REVIEW, EXPLAINED_REVIEW):
        assert complaints(kind, {"resourceAttributes": GET}) == nobody
        assert complaints(kind, {"resourceAttributes": GET, "user": "", "groups": []}) == nobody
        assert complaints(kind, {"resourceAttributes": GET, "groups": ["g"]}) == []


def test_a_key_stands_for_somebody_and_for_nobody_else() -> None:
    assert complaints(EXPLAINED_REVIEW, {"resourceAttributes": GET, "accessKey": "k"}) == []
    (problem,) = complaints(EXPLAINED_REVIEW, {"resourceAttributes": GET, "accessKey": "k", "user": "x"})
    assert problem == "spec.accessKey: Forbidden: the subject is derived from the key; leave out user"


def test_what_is_not_stored_has_no_metadata() -> None:
    spec = {"resourceAttributes": GET}
    assert complaints(SELF_SUBJECT_ACCESS_REVIEW, spec, name="x") == [
        'metadata: Invalid value: {"name":"x"}: must be empty'
    ]
    assert complaints(SELF_SUBJECT_ACCESS_REVIEW, spec, managedFields=[{"manager": "kubectl"}]) == []


def test_a_local_review_is_about_its_own_namespace() -> None:
    def told(namespace: str | None) -> list[str]:
        attributes = GET if namespace is None else {**GET, "namespace": namespace}
        spec = {"user": "x", "resourceAttributes": attributes}
        return complaints(LOCAL_SUBJECT_ACCESS_REVIEW, spec, namespace="demo")

    path, why = "spec.resourceAttributes.namespace", "must match metadata.namespace"
    assert told("demo") == []
    assert told("other") == [f'{path}: Invalid value: "other": {why}']
    assert told(None) == [f'{path}: Invalid value: "": {why}']


def test_a_local_review_is_not_about_paths() -> None:
    spec = {"user": "x", "nonResourceAttributes": PATH}
    assert complaints(LOCAL_SUBJECT_ACCESS_REVIEW, spec, namespace="demo") == [
        'spec.nonResourceAttributes: Invalid value: {"Path":"/x","Verb":"get"}: disallowed on this kind of request'
    ]


def test_a_token_is_a_secret_that_no_answer_has() -> None:
    assert TOKEN_REVIEW.sensitive == TOKEN_REVIEW.write_only == ("spec.token",)
