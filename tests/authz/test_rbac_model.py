"""RbacAuthorizer agrees with a simple model of the RBAC rules of Kubernetes."""

from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.core.call import RequestInfo
from fairlead.core.objects import Object
from fairlead.core.user import User
from tests.authz.roles import binding, build_rbac, object_metadata, path_request, resource_request, role, subject
from tests.harness.properties import at_least


def model_allows(objects: dict[str, list[Object]], user: User, target: RequestInfo) -> bool:
    """The rules of Kubernetes, evaluated from scratch for every request."""
    for each in objects["cluster_role_bindings"] + objects["role_bindings"]:
        namespace = each["metadata"].get("namespace", "")
        if namespace and namespace != target.namespace:
            continue
        kind, name = each["roleRef"]["kind"], each["roleRef"]["name"]
        candidates = objects["cluster_roles"] if kind == "ClusterRole" else objects["roles"]
        role_namespace = "" if kind == "ClusterRole" else namespace
        roles = [found for found in candidates if found["metadata"] == object_metadata(name, role_namespace)]
        if any(model_subject_matches(item, namespace, user) for item in each["subjects"]) and any(
            model_rule_allows(item, target) for found in roles for item in found["rules"] or ()
        ):
            return True
    return False


def model_subject_matches(subject: Object, namespace: str, user: User) -> bool:
    if subject["kind"] == "Group":
        return subject["name"] in user.groups
    if subject["kind"] == "User":
        return bool(subject["name"] == user.name)
    return user.name == f"system:serviceaccount:{subject.get('namespace') or namespace}:{subject['name']}"


def model_rule_allows(rule: Object, target: RequestInfo) -> bool:
    if not {target.verb, "*"} & set(rule["verbs"]):
        return False
    if not target.resource:
        urls = rule.get("nonResourceURLs", ())
        return any(
            url in ("*", target.path) or (url.endswith("*") and target.path.startswith(url.rstrip("*"))) for url in urls
        )
    resource = f"{target.resource}/{target.subresource}".rstrip("/")
    patterns = {"*", resource} | ({f"*/{target.subresource}"} if target.subresource else set())
    names = rule.get("resourceNames")
    return bool(
        {target.group, "*"} & set(rule.get("apiGroups", ()))
        and patterns & set(rule.get("resources", ()))
        and (not names or target.name in names)
    )


def sublists_of(*values: str, min_size: int = 1) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(values), min_size=min_size, max_size=3)


VERBS, GROUPS, NAMES, NAMESPACES = ("get", "list", "*"), ("", "g", "*"), ("a", "b"), ("n", "m")
RULES = st.one_of(
    st.fixed_dictionaries(
        {
            "verbs": sublists_of(*VERBS),
            "apiGroups": sublists_of(*GROUPS),
            "resources": sublists_of("apps", "cm", "apps/status", "*/status", "*"),
        },
        optional={"resourceNames": sublists_of(*NAMES, "", min_size=0)},
    ),
    st.fixed_dictionaries(
        {"verbs": sublists_of(*VERBS), "nonResourceURLs": sublists_of("/x", "/x/*", "/x*", "*", "/")}
    ),
)
SUBJECTS = st.one_of(
    st.builds(
        subject, st.sampled_from(("User", "Group")), st.sampled_from(("bob", "devs", "system:serviceaccount:n:a"))
    ),
    st.builds(subject, st.just("ServiceAccount"), st.sampled_from(NAMES), st.sampled_from(("n", "m"))),
)


def unique_lists_of(each: st.SearchStrategy[Object]) -> st.SearchStrategy[list[Object]]:
    """Lists of objects with distinct namespaces and names."""
    return st.lists(each, max_size=3, unique_by=lambda item: tuple(sorted(item["metadata"].items())))


def roles_in(namespaces: tuple[str, ...]) -> st.SearchStrategy[list[Object]]:
    strategy = st.builds(
        lambda name, namespace, rules: role(*rules, name=name, namespace=namespace),
        st.sampled_from(NAMES),
        st.sampled_from(namespaces),
        st.lists(RULES, max_size=3),
    )
    return unique_lists_of(strategy)


def bindings_in(namespaces: tuple[str, ...], kinds: tuple[str, ...]) -> st.SearchStrategy[list[Object]]:
    strategy = st.builds(
        lambda name, namespace, kind, role_name, subjects: binding(
            *subjects, name=name, namespace=namespace, kind=kind, role_name=role_name
        ),
        *(st.sampled_from(each) for each in (NAMES, namespaces, kinds, NAMES)),
        st.lists(SUBJECTS, max_size=3),
    )
    return unique_lists_of(strategy)


OBJECTS = st.fixed_dictionaries(
    {
        "roles": roles_in(NAMESPACES),
        "cluster_roles": roles_in(("",)),
        "role_bindings": bindings_in(NAMESPACES, ("Role", "ClusterRole")),
        "cluster_role_bindings": bindings_in(("",), ("ClusterRole",)),
    }
)
USERS = st.builds(
    User,
    st.sampled_from(("bob", "devs", "system:serviceaccount:n:a", "system:serviceaccount:m:b")),
    st.lists(st.sampled_from(("bob", "devs")), max_size=2).map(tuple),
)
TARGETS = st.one_of(
    st.builds(
        resource_request,
        st.sampled_from(("get", "list", "use")),
        st.sampled_from(("apps", "cm", "apps/status", "cm/status", "cm/scale")),
        st.sampled_from(("", "a", "c")),
        st.sampled_from(("", "g", "h")),
        st.sampled_from(("", "n", "m", "o")),
    ),
    st.builds(path_request, st.sampled_from(("get", "put")), st.sampled_from(("/", "/x", "/x/y", "/xyz", "/z"))),
)


@settings(max_examples=at_least(100))
@given(OBJECTS, USERS, st.lists(TARGETS, min_size=1, max_size=5))
def test_decisions_agree_with_the_model(
    objects: dict[str, list[Object]], user: User, targets: list[RequestInfo]
) -> None:
    rbac = build_rbac(**objects)
    for target in targets:
        decision = rbac(user, target)
        assert (decision is not None) == model_allows(objects, user, target)
        assert decision is None or decision.allowed


@settings(max_examples=at_least(100))
@given(OBJECTS, USERS, TARGETS)
def test_decisions_agree_with_the_listed_rules(
    objects: dict[str, list[Object]], user: User, target: RequestInfo
) -> None:
    rbac = build_rbac(**objects)
    is_allowed_by_rules = any(model_rule_allows(each, target) for each in rbac.rules_for(user, target.namespace))
    assert is_allowed_by_rules == (rbac(user, target) is not None)
