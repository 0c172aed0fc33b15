"""RBAC decides as Kubernetes words it: held against an evaluator that is as plain as the wording."""

from hypothesis import given
from hypothesis import strategies as st

from fairlead.core.call import RequestInfo
from fairlead.core.objects import Object
from fairlead.core.user import User
from tests.authz.roles import asked, binding, fixed, named, path, role, subject


def naive(objects: dict[str, list[Object]], user: User, target: RequestInfo) -> bool:
    """Kubernetes' rules word by word, from the beginning for every question."""
    for each in objects["cluster_role_bindings"] + objects["role_bindings"]:
        namespace = each["metadata"].get("namespace", "")
        if namespace and namespace != target.namespace:
            continue
        kind, name = each["roleRef"]["kind"], each["roleRef"]["name"]
        candidates = objects["cluster_roles"] if kind == "ClusterRole" else objects["roles"]
        home = "" if kind == "ClusterRole" else namespace
        roles = [found for found in candidates if found["metadata"] == named(name, home)]
        if any(naively_names(one, namespace, user) for one in each["subjects"]) and any(
            naively_allows(one, target) for found in roles for one in found["rules"] or ()
        ):
            return True
    return False


def naively_names(one: Object, namespace: str, user: User) -> bool:
    if one["kind"] == "Group":
        return one["name"] in user.groups
    if one["kind"] == "User":
        return bool(one["name"] == user.name)
    return user.name == f"system:serviceaccount:{one.get('namespace') or namespace}:{one['name']}"


def naively_allows(one: Object, target: RequestInfo) -> bool:
    if not {target.verb, "*"} & set(one["verbs"]):
        return False
    if not target.resource:
        urls = one.get("nonResourceURLs", ())
        return any(
            url in ("*", target.path) or (url.endswith("*") and target.path.startswith(url.rstrip("*"))) for url in urls
        )
    resource = f"{target.resource}/{target.subresource}".rstrip("/")
    spelled = {"*", resource} | ({f"*/{target.subresource}"} if target.subresource else set())
    names = one.get("resourceNames")
    return bool(
        {target.group, "*"} & set(one.get("apiGroups", ()))
        and spelled & set(one.get("resources", ()))
        and (not names or target.name in names)
    )


def some(*values: str, least: int = 1) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(values), min_size=least, max_size=3)


VERBS, GROUPS, NAMES, SPACES = ("get", "list", "*"), ("", "g", "*"), ("a", "b"), ("n", "m")
RULES = st.one_of(
    st.fixed_dictionaries(
        {
            "verbs": some(*VERBS),
            "apiGroups": some(*GROUPS),
            "resources": some("apps", "cm", "apps/status", "*/status", "*"),
        },
        optional={"resourceNames": some(*NAMES, "", least=0)},
    ),
    st.fixed_dictionaries({"verbs": some(*VERBS), "nonResourceURLs": some("/x", "/x/*", "/x*", "*", "/")}),
)
SUBJECTS = st.one_of(
    st.builds(
        subject, st.sampled_from(("User", "Group")), st.sampled_from(("bob", "devs", "system:serviceaccount:n:a"))
    ),
    st.builds(subject, st.just("ServiceAccount"), st.sampled_from(NAMES), st.sampled_from(("n", "m"))),
)


def several(each: st.SearchStrategy[Object]) -> st.SearchStrategy[list[Object]]:
    """Objects with places of their own."""
    return st.lists(each, max_size=3, unique_by=lambda one: tuple(sorted(one["metadata"].items())))


def roles_in(namespaces: tuple[str, ...]) -> st.SearchStrategy[list[Object]]:
    make = st.builds(
        lambda name, namespace, rules: role(*rules, name=name, namespace=namespace),
        st.sampled_from(NAMES),
        st.sampled_from(namespaces),
        st.lists(RULES, max_size=3),
    )
    return several(make)


def bindings_in(namespaces: tuple[str, ...], kinds: tuple[str, ...]) -> st.SearchStrategy[list[Object]]:
    make = st.builds(
        lambda name, namespace, kind, to, subjects: binding(
            *subjects, name=name, namespace=namespace, kind=kind, to=to
        ),
        *(st.sampled_from(each) for each in (NAMES, namespaces, kinds, NAMES)),
        st.lists(SUBJECTS, max_size=3),
    )
    return several(make)


OBJECTS = st.fixed_dictionaries(
    {
        "roles": roles_in(SPACES),
        "cluster_roles": roles_in(("",)),
        "role_bindings": bindings_in(SPACES, ("Role", "ClusterRole")),
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
        asked,
        st.sampled_from(("get", "list", "use")),
        st.sampled_from(("apps", "cm", "apps/status", "cm/status", "cm/scale")),
        st.sampled_from(("", "a", "c")),
        st.sampled_from(("", "g", "h")),
        st.sampled_from(("", "n", "m", "o")),
    ),
    st.builds(path, st.sampled_from(("get", "put")), st.sampled_from(("/", "/x", "/x/y", "/xyz", "/z"))),
)


@given(OBJECTS, USERS, st.lists(TARGETS, min_size=1, max_size=5))
def test_it_decides_as_kubernetes_words_it(
    objects: dict[str, list[Object]], user: User, targets: list[RequestInfo]
) -> None:
    rbac = fixed(**objects)
    for target in targets:
        decision = rbac(user, target)
        assert (decision is not None) == naive(objects, user, target)
        assert decision is None or decision.allowed


@given(OBJECTS, USERS, TARGETS)
def test_the_rules_it_tells_are_the_rules_it_decides_by(
    objects: dict[str, list[Object]], user: User, target: RequestInfo
) -> None:
    rbac = fixed(**objects)
    told = any(naively_allows(each, target) for each in rbac.rules_for(user, target.namespace))
    assert told == (rbac(user, target) is not None)
