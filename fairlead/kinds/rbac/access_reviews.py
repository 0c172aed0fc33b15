"""Access reviews: SubjectAccessReview and its variants. Create-only and not persisted.

The kinds of authorization.k8s.io are those of Kubernetes, for `kubectl auth can-i`. The kinds of the management group
add fields: the access key or the scope to review, the decision path of the authorizers, and whether a list is filtered.
SelfSubjectAccessReviewBatch has many reviews in one request, ResourceAccessReview lists who may do something. This
module declares schemas and validation; `subresources/access_reviews.py` and `subresources/access_reviews.py` have the
handlers.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from fairlead.core.objects import Object, metadata
from fairlead.kinds.access.scope import SCOPE, scope_problems
from fairlead.kinds.answered import create_only_kind
from fairlead.registry import limits
from fairlead.registry.kind import MANAGEMENT_GROUP, Change, Kind, Problem
from fairlead.registry.schema import Schema, array, boolean, mapping, obj, string, with_description

AUTHORIZATION_GROUP = "authorization.k8s.io"

Check = Callable[[Change], Iterable[Problem]]


def _selector(description: str) -> Schema:
    requirement = obj(
        key=string("Key that the selector applies to."),
        operator=string("Relation of the key to the values: `In`, `NotIn`, `Exists` or `DoesNotExist`."),
        values=array(string(), "Values for the operator.", max_items=limits.SELECTOR_VALUES),
    )
    return obj(
        description,
        rawSelector=string("The selector as in a query parameter.", max_length=limits.SELECTOR_LENGTH),
        requirements=array(requirement, "The selector as parsed requirements.", max_items=limits.SELECTOR_TERMS),
    )


_RESOURCE = obj(
    "A request for a resource. Mutually exclusive with nonResourceAttributes.",
    verb=string("Verb: `get`, `list`, `create`, `use` and so on. `*` means all verbs."),
    group=string("API group of the resource, empty for the core group. `*` means all groups."),
    version=string("API version of the resource. Ignored by the authorizers."),
    resource=string("Plural name of the resource. `*` means all resources."),
    subresource=string("Subresource, such as `status`."),
    namespace=string("Namespace of the object; empty for all namespaces or cluster-scoped objects."),
    name=string("Name of the object; empty for all objects."),
    fieldSelector=_selector("Field selector of a list. Accepted, but ignored by the authorizers."),
    labelSelector=_selector("Label selector of a list. Accepted, but ignored by the authorizers."),
)

_PATH = obj(
    "A request for a non-resource path. Mutually exclusive with resourceAttributes.",
    path=string("The path, such as `/version`.", max_length=limits.URL),
    verb=string("The lowercase HTTP method, such as `get`."),
)

_ATTRIBUTES = {"resourceAttributes": _RESOURCE, "nonResourceAttributes": _PATH}

_SUBJECT = {
    "user": string("The user to review. With a user and no groups, the user is treated as a member of no groups."),
    "groups": array(string(), "The groups to review.", max_items=limits.GROUPS),
    "uid": string("UID of the user. Ignored by the authorizers."),
    "extra": mapping(
        array(string(max_length=limits.DESCRIPTION)), "Extra attributes of the user. Ignored by the authorizers."
    ),
}

_ACCESS_KEY = {
    "accessKey": string("Name of an OwnedAccessKey: reviews requests with this key, restricted by its scope.")
}

_SCOPE = {
    "scope": with_description(
        SCOPE,
        "Reviews requests of the requester with an access key of this scope, which need not exist. Mutually exclusive "
        "with accessKey.",
    )
}

MAX_BATCH_REVIEWS = 200

_RESULT = {
    "allowed": boolean("Whether the request is allowed."),
    "denied": boolean("Not used: a request that is not allowed is denied."),
    "reason": string("Why the request is allowed or not.", max_length=limits.MESSAGE),
    "evaluationError": string("An error during the authorization check.", max_length=limits.MESSAGE),
}

_DECISION_PATH = array(
    obj(
        step=string("Name of the authorizer."),
        verdict=string(
            "Its decision: `allow`, `deny`, `no opinion`, or `not evaluated` if an earlier one has decided."
        ),
        reason=string("Reason for the decision.", max_length=limits.MESSAGE),
    ),
    "The decisions of all authorizers, in the order of the chain.",
)

_STATUS = obj("The result of the review.", required=(), **_RESULT)
_FILTERED = {
    "filtered": boolean(
        "The request is a list or watch that succeeds, but returns only the objects that the requester may get. "
        "`allowed` is then false, because it is about all objects."
    )
}
_EXPLAINED = obj(
    "The result of the review, and its decision path.", required=(), **_RESULT, **_FILTERED, path=_DECISION_PATH
)
_BATCH_STATUS = obj(
    "The results of the reviews.",
    required=(),
    reviews=array(
        obj("The result of one review.", required=(), **_RESULT, **_FILTERED),
        "One result for each review of the spec, in the same order.",
        max_items=MAX_BATCH_REVIEWS,
    ),
)

_RULE = {"verbs": array(string(), "Allowed verbs. `*` means all verbs.")}
_RULES = obj(
    "The result of the review.",
    resourceRules=array(
        obj(
            required=(),
            **_RULE,
            apiGroups=array(string(), "API groups of the resources. `*` means all groups."),
            resources=array(string(), "Resources that the rule applies to. `*` means all resources."),
            resourceNames=array(
                string(), "Names of the objects; empty for all objects.", max_items=limits.SERVER_WRITTEN_ITEMS
            ),
        ),
        "Allowed actions on resources. The order is not significant.",
        max_items=limits.SERVER_WRITTEN_ITEMS,
    ),
    nonResourceRules=array(
        obj(required=(), **_RULE, nonResourceURLs=array(string(), "Paths; a `*` at the end matches everything below.")),
        "Allowed actions on non-resource paths.",
        max_items=limits.SERVER_WRITTEN_ITEMS,
    ),
    incomplete=boolean("The rules are incomplete or may not all apply: use SelfSubjectAccessReview for each action."),
    evaluationError=string("Why the rules are incomplete.", max_length=limits.MESSAGE),
)


def set_defaults(change: Change) -> None:
    change.obj.setdefault("spec", {})


def check_nothing(change: Change) -> Iterable[Problem]:
    return ()


def check_self(change: Change) -> Iterable[Problem]:
    yield from _attribute_problems(change.spec)
    yield from _metadata_problems(change.obj)


def check_explained_self(change: Change) -> Iterable[Problem]:
    yield from check_self(change)
    yield from _restriction_problems(change.spec)


def check_batch(change: Change) -> Iterable[Problem]:
    reviews = change.spec.get("reviews")
    if not reviews:
        yield Problem.required("spec.reviews", f"name 1 to {MAX_BATCH_REVIEWS} reviews")
    for index, review in enumerate(reviews or ()):
        yield from _attribute_problems(review, f"spec.reviews[{index}]")
    yield from _restriction_problems(change.spec)
    yield from _metadata_problems(change.obj)


def _restriction_problems(spec: Object) -> Iterable[Problem]:
    yield from scope_problems(spec.get("scope"), "spec.scope")
    if spec.get("accessKey") and spec.get("scope") is not None:
        yield Problem.forbidden("spec.scope", "an access key has its own scope; leave out accessKey or scope")


def check_subject(change: Change) -> Iterable[Problem]:
    spec = change.spec
    yield from _attribute_problems(spec)
    if not (spec.get("user") or spec.get("groups") or spec.get("accessKey")):
        yield Problem.invalid("spec.user", "", "at least one of user or group must be specified")
    yield from _metadata_problems(change.obj)


def check_explained(change: Change) -> Iterable[Problem]:
    yield from check_subject(change)
    named = [name for name in ("user", "groups", "uid", "extra") if change.spec.get(name)]
    if change.spec.get("accessKey") and named:
        reason = f"the subject is derived from the key; leave out {', '.join(named)}"
        yield Problem.forbidden("spec.accessKey", reason)


def check_local(change: Change) -> Iterable[Problem]:
    yield from check_subject(change)
    resource = change.spec.get("resourceAttributes")
    path = change.spec.get("nonResourceAttributes")
    if path is not None:
        yield Problem.invalid(
            "spec.nonResourceAttributes", _format_attributes(path), "disallowed on this kind of request"
        )
    namespace = (resource or {}).get("namespace", "")
    if resource is not None and namespace != metadata(change.obj).get("namespace"):
        yield Problem.invalid("spec.resourceAttributes.namespace", namespace, "must match metadata.namespace")


def _attribute_problems(spec: Object, path_of_spec: str = "spec") -> Iterable[Problem]:
    resource = spec.get("resourceAttributes")
    path = spec.get("nonResourceAttributes")
    if (resource is None) == (path is None):
        reason = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        yield Problem.invalid(path_of_spec, _format_attributes(path), reason)


def _format_attributes(path: Object | None) -> Object | None:
    """Non-resource attributes as kube-apiserver formats them in error messages."""
    return None if path is None else {"Path": path.get("path", ""), "Verb": path.get("verb", "")}


def _metadata_problems(review: Object) -> Iterable[Problem]:
    """Reports metadata other than the namespace; reviews are not persisted. managedFields are ignored."""
    found = {name: value for name, value in metadata(review).items() if name not in ("namespace", "managedFields")}
    if found:
        yield Problem.invalid("metadata", found, "must be empty")


def _review(group: str, name: str, spec: Schema, status: Schema, check: Check, *, namespaced: bool = False) -> Kind:
    description = f"{spec['description']} Create-only; not persisted."
    fields = {"spec": spec, "status": status}
    return replace(
        create_only_kind(name, description, fields, group=group, namespaced=namespaced),
        default=set_defaults,
        check=check,
    )


SELF_SUBJECT_ACCESS_REVIEW = _review(
    AUTHORIZATION_GROUP,
    "SelfSubjectAccessReview",
    obj("Checks whether the requester may perform an action.", required=(), **_ATTRIBUTES),
    _STATUS,
    check_self,
)

SUBJECT_ACCESS_REVIEW = _review(
    AUTHORIZATION_GROUP,
    "SubjectAccessReview",
    obj("Checks whether a user or group may perform an action.", required=(), **_ATTRIBUTES, **_SUBJECT),
    _STATUS,
    check_subject,
)

LOCAL_SUBJECT_ACCESS_REVIEW = _review(
    AUTHORIZATION_GROUP,
    "LocalSubjectAccessReview",
    obj(
        "Checks whether a user or group may perform an action in this namespace.",
        required=(),
        **_ATTRIBUTES,
        **_SUBJECT,
    ),
    _STATUS,
    check_local,
    namespaced=True,
)

SELF_SUBJECT_RULES_REVIEW = _review(
    AUTHORIZATION_GROUP,
    "SelfSubjectRulesReview",
    obj(
        "Lists the actions that roles allow the requester in a namespace.",
        namespace=string("The namespace to evaluate rules for."),
    ),
    _RULES,
    check_nothing,
)

EXPLAINED_SELF_REVIEW = replace(
    _review(
        MANAGEMENT_GROUP,
        "SelfSubjectAccessReview",
        obj(
            "Checks whether the requester, or one of its access keys, may perform an action.",
            required=(),
            **_ATTRIBUTES,
            **_ACCESS_KEY,
            **_SCOPE,
        ),
        _EXPLAINED,
        check_explained_self,
    ),
    reject_unknown_under=("spec.scope",),
)

SELF_REVIEW_BATCH = replace(
    _review(
        MANAGEMENT_GROUP,
        "SelfSubjectAccessReviewBatch",
        obj(
            "Checks many actions in one request: the same as one SelfSubjectAccessReview for each of them.",
            required=(),
            reviews=array(
                obj("An action to check.", required=(), **_ATTRIBUTES),
                "The actions to check, at most 200.",
                max_items=MAX_BATCH_REVIEWS,
            ),
            **_ACCESS_KEY,
            **_SCOPE,
        ),
        _BATCH_STATUS,
        check_batch,
    ),
    plural="selfsubjectaccessreviewbatches",
    reject_unknown_under=("spec.scope",),
)

EXPLAINED_REVIEW = _review(
    MANAGEMENT_GROUP,
    "SubjectAccessReview",
    obj(
        "Checks whether a user, a group or an access key may perform an action.",
        required=(),
        **_ATTRIBUTES,
        **_SUBJECT,
        **_ACCESS_KEY,
    ),
    _EXPLAINED,
    check_explained,
)

MAX_REVIEW_SUBJECTS = 500
"""How many users, groups and teams each a ResourceAccessReview returns."""


def _subjects(description: str) -> Schema:
    subject = obj(
        required=(),
        name=string("Name of the subject."),
        via=string("The authorizer that allows it, such as `rbac`, `project member`, `owner` or `administrators`."),
        reason=string("Why it is allowed, such as the binding and role.", max_length=limits.MESSAGE),
    )
    return array(subject, description, max_items=MAX_REVIEW_SUBJECTS)


RESOURCE_ACCESS_REVIEW = _review(
    MANAGEMENT_GROUP,
    "ResourceAccessReview",
    obj("Lists who may perform an action.", required=(), **_ATTRIBUTES),
    obj(
        "The subjects that may perform the action, sorted by name.",
        required=(),
        users=_subjects("Active users, including those with a team, and users and service accounts of role bindings."),
        groups=_subjects("Groups of role bindings, and the built-in admin groups."),
        teams=_subjects("Active teams."),
        truncated=boolean("There are more subjects than were checked or are listed here."),
    ),
    check_self,
)
