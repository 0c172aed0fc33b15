"""Reviews of access: may somebody do something, and what may I do at all? Asked with a POST, never stored.

The kinds of authorization.k8s.io are Kubernetes' own, which `kubectl auth can-i` asks. Those of the management group
have the same shape and two fields more: they can be asked about an access key, and they tell the path of the decision.
`subresources/access_reviews.py` answers them; here stands only what they look like and what makes no sense.
"""

from collections.abc import Callable, Iterable

from fairlead.core.objects import Object, metadata
from fairlead.registry import limits
from fairlead.registry.kind import MANAGEMENT_GROUP, Change, Kind, Problem
from fairlead.registry.schema import Schema, array, boolean, mapping, obj, string

AUTHORIZATION_GROUP = "authorization.k8s.io"

Check = Callable[[Change], Iterable[Problem]]


def _selector(description: str) -> Schema:
    requirement = obj(
        key=string("What is selected by."),
        operator=string("How the values are compared: `In`, `NotIn`, `Exists` or `DoesNotExist`."),
        values=array(string(), "What is compared with.", most=limits.SELECTOR_VALUES),
    )
    return obj(
        description,
        rawSelector=string("The selector as it stands in a URL.", longest=limits.SELECTOR_LENGTH),
        requirements=array(requirement, "The same, taken apart.", most=limits.SELECTOR_TERMS),
    )


_RESOURCE = obj(
    "Something to be done to a resource. Either this or nonResourceAttributes.",
    verb=string("What is to be done: `get`, `list`, `create`, `use` and so on. `*` means everything."),
    group=string("API group of the resource, empty for the core group. `*` means all of them."),
    version=string("Version of the API. Permissions do not depend on it."),
    resource=string("The resource, in plural. `*` means all of them."),
    subresource=string("A part of the resource, such as `status`."),
    namespace=string("Namespace of the object; empty for all namespaces, or where there is none."),
    name=string("Name of the object; empty for all of them."),
    fieldSelector=_selector("Limits a list by fields. Accepted, and without effect on the answer."),
    labelSelector=_selector("Limits a list by labels. Accepted, and without effect on the answer."),
)

_PATH = obj(
    "Something to be done to a path that is no resource. Either this or resourceAttributes.",
    path=string("The path, such as `/version`.", longest=limits.URL),
    verb=string("The HTTP method in lower case, such as `get`."),
)

_ATTRIBUTES = {"resourceAttributes": _RESOURCE, "nonResourceAttributes": _PATH}

_SUBJECT = {
    "user": string("Whom the question is about. With a user and no groups, the user is taken to be in none."),
    "groups": array(string(), "The groups of whom the question is about.", most=limits.GROUPS),
    "uid": string("The uid of whom the question is about. Permissions do not depend on it."),
    "extra": mapping(
        array(string(longest=limits.DESCRIPTION)), "What else is known about them. Permissions do not depend on it."
    ),
}

_ACCESS_KEY = {
    "accessKey": string(
        "Name of an OwnedAccessKey: the question is about whoever uses this key, within the key's scope."
    )
}

_VERDICT = {
    "allowed": boolean("Whether it is allowed."),
    "denied": boolean("Not used: what is not allowed is denied."),
    "reason": string("What allows it, or what was missing.", longest=limits.MESSAGE),
    "evaluationError": string("What went wrong while the question was being answered.", longest=limits.MESSAGE),
}

_PATH_OF_DECISION = array(
    obj(
        step=string("Who was asked."),
        verdict=string("The answer: `allow`, `deny`, `no opinion`, or `not asked` once another one has decided."),
        reason=string("Why.", longest=limits.MESSAGE),
    ),
    "How the answer came about: everyone who has a say, in the order in which they are asked.",
)

_STATUS = obj("The answer.", required=(), **_VERDICT)
_EXPLAINED = obj("The answer, and how it came about.", required=(), **_VERDICT, path=_PATH_OF_DECISION)

_RULE = {"verbs": array(string(), "What may be done. `*` means everything.")}
_RULES = obj(
    "The answer.",
    resourceRules=array(
        obj(
            required=(),
            **_RULE,
            apiGroups=array(string(), "API groups of the resources. `*` means all of them."),
            resources=array(string(), "Resources that it may be done to. `*` means all of them."),
            resourceNames=array(string(), "Names of the objects; empty for all of them.", most=limits.ANSWERED),
        ),
        "What may be done to resources. In no particular order.",
        most=limits.ANSWERED,
    ),
    nonResourceRules=array(
        obj(required=(), **_RULE, nonResourceURLs=array(string(), "Paths; a `*` at the end stands for all below.")),
        "What may be done to paths that are no resources.",
        most=limits.ANSWERED,
    ),
    incomplete=boolean("Something is missing, or not all of this holds: ask about it one by one."),
    evaluationError=string("Why the answer is incomplete.", longest=limits.MESSAGE),
)


def prepare(change: Change) -> None:
    change.obj.setdefault("spec", {})


def check_nothing(change: Change) -> Iterable[Problem]:
    return ()


def check_self(change: Change) -> Iterable[Problem]:
    yield from _attribute_problems(change.spec)
    yield from _metadata_problems(change.obj)


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
        yield Problem.forbidden("spec.accessKey", f"a key says by itself whose it is; leave out {', '.join(named)}")


def check_local(change: Change) -> Iterable[Problem]:
    yield from check_subject(change)
    resource, path = change.spec.get("resourceAttributes"), change.spec.get("nonResourceAttributes")
    if path is not None:
        yield Problem.invalid("spec.nonResourceAttributes", _told(path), "disallowed on this kind of request")
    namespace = (resource or {}).get("namespace", "")
    if resource is not None and namespace != metadata(change.obj).get("namespace"):
        yield Problem.invalid("spec.resourceAttributes.namespace", namespace, "must match metadata.namespace")


def _attribute_problems(spec: Object) -> Iterable[Problem]:
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if (resource is None) == (path is None):
        why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        yield Problem.invalid("spec", _told(path), why)


def _told(path: Object | None) -> Object | None:
    """Attributes as a kube-apiserver quotes them."""
    return None if path is None else {"Path": path.get("path", ""), "Verb": path.get("verb", "")}


def _metadata_problems(review: Object) -> Iterable[Problem]:
    """What is not stored has no name and no labels. Who manages its fields is nobody's concern."""
    found = {name: value for name, value in metadata(review).items() if name not in ("namespace", "managedFields")}
    if found:
        yield Problem.invalid("metadata", found, "must be empty")


def _review(group: str, name: str, spec: Schema, status: Schema, check: Check, *, namespaced: bool = False) -> Kind:
    return Kind(
        name=name,
        plural=f"{name.lower()}s",
        namespaced=namespaced,
        group=group,
        fields={"spec": spec, "status": status},
        description=f"{spec['description']} Asked with a POST and answered; nothing is stored.",
        verbs=("create",),
        stored=False,
        builtin=True,
        prepare=prepare,
        check=check,
    )


SELF_SUBJECT_ACCESS_REVIEW = _review(
    AUTHORIZATION_GROUP,
    "SelfSubjectAccessReview",
    obj("What the caller would like to do.", required=(), **_ATTRIBUTES),
    _STATUS,
    check_self,
)

SUBJECT_ACCESS_REVIEW = _review(
    AUTHORIZATION_GROUP,
    "SubjectAccessReview",
    obj("What somebody would like to do.", required=(), **_ATTRIBUTES, **_SUBJECT),
    _STATUS,
    check_subject,
)

LOCAL_SUBJECT_ACCESS_REVIEW = _review(
    AUTHORIZATION_GROUP,
    "LocalSubjectAccessReview",
    obj("What somebody would like to do in this namespace.", required=(), **_ATTRIBUTES, **_SUBJECT),
    _STATUS,
    check_local,
    namespaced=True,
)

SELF_SUBJECT_RULES_REVIEW = _review(
    AUTHORIZATION_GROUP,
    "SelfSubjectRulesReview",
    obj("Where the caller would like to know what roles allow.", namespace=string("The namespace in question.")),
    _RULES,
    check_nothing,
)

EXPLAINED_SELF_REVIEW = _review(
    MANAGEMENT_GROUP,
    "SelfSubjectAccessReview",
    obj("What the caller would like to do, perhaps with another key.", required=(), **_ATTRIBUTES, **_ACCESS_KEY),
    _EXPLAINED,
    check_self,
)

EXPLAINED_REVIEW = _review(
    MANAGEMENT_GROUP,
    "SubjectAccessReview",
    obj("What somebody would like to do, or whoever has a key.", required=(), **_ATTRIBUTES, **_SUBJECT, **_ACCESS_KEY),
    _EXPLAINED,
    check_explained,
)
