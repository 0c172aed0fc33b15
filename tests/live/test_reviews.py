"""Reviews and counts over HTTP: for administrators, members, viewers, scoped keys and anonymous clients."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from fairlead.kinds import KINDS
from fairlead.registry.kind import MANAGEMENT_GROUP, Kind
from tests.harness.server_process import MANAGEMENT, Server, running_server

M = f"{MANAGEMENT}/apis/{MANAGEMENT_GROUP}/v1"
CORE = f"{MANAGEMENT}/api/v1"
RBAC = f"{MANAGEMENT}/apis/rbac.authorization.k8s.io/v1"
Object = dict[str, Any]
NAMESPACE = "service-p-web"
PROJECT_SCOPE: Object = {"projects": [{"project": "web"}], "allowServiceCli": True}


@dataclass(frozen=True, slots=True)
class Installation:
    """A server with the project `web`: ann is its admin, bob a user of it, vic a viewer, and eve has nothing."""

    server: Server
    keys: dict[str, str]

    def send(self, who: str, method: str, path: str, body: Object | None = None, **headers: str) -> httpx.Response:
        key = None if who == "anonymous" else self.keys[who]
        with self.server.client(key) as client:
            return client.request(method, path, json=body, headers=headers)

    def post(self, who: str, plural: str, spec: Object, code: int = 201) -> Object:
        response = self.send(who, "POST", f"{M}/{plural}", {"spec": spec})
        assert response.status_code == code, response.text
        answer: Object = response.json()
        return answer

    def review(self, who: str, reviews: list[Object], **restriction: Any) -> list[Object]:
        answer = self.post(who, "selfsubjectaccessreviewbatches", {"reviews": reviews, **restriction})
        found: list[Object] = answer["status"]["reviews"]
        return found


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    with running_server(tmp_path_factory.mktemp("reviews") / "data") as server, server.client() as client:

        def create(path: str, kind: str, name: str, **fields: Any) -> Object:
            response = client.post(path, json={"kind": kind, "metadata": {"name": name}, **fields})
            assert response.status_code == 201, response.text
            created: Object = response.json()
            return created

        def create_key(user: str, name: str = "", **spec: Any) -> str:
            body = {"user": user, "displayName": name or user, **spec}
            key = create(f"{M}/ownedaccesskeys", "OwnedAccessKey", name or user, spec=body, **TYPE)
            value: str = key["spec"]["key"]
            return value

        for user in ("ann", "bob", "vic", "eve"):
            create(f"{M}/users", "User", user, spec={"username": user}, **TYPE)
        members = [
            {"kind": "User", "name": name, "clusterRole": role}
            for name, role in (("ann", "admin"), ("bob", "user"), ("vic", "viewer"))
        ]
        create(f"{M}/projects", "Project", "web", spec={"members": members}, **TYPE)
        for name in ("one", "two"):
            create(f"{CORE}/namespaces/{NAMESPACE}/configmaps", "ConfigMap", name)
        for name, owner in (("shared", "vic"), ("hidden", "admin")):
            create(f"{M}/apps", "App", name, spec={"owner": {"user": owner}}, **TYPE)
        role_ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole"}
        subjects = [
            {"kind": "Group", "name": "readers", "apiGroup": "rbac.authorization.k8s.io"},
            {"kind": "ServiceAccount", "name": "robot", "namespace": "default"},
        ]
        fields = {"roleRef": {**role_ref, "name": "view"}, "subjects": subjects}
        create(f"{RBAC}/namespaces/{NAMESPACE}/rolebindings", "RoleBinding", "read", **fields)
        create(f"{M}/teams", "Team", "ops", spec={"users": ["eve"]}, **TYPE)
        create(f"{M}/apps", "App", "team-app", spec={"owner": {"team": "ops"}}, **TYPE)
        keys = {user: create_key(user) for user in ("ann", "bob", "vic", "eve")}
        keys |= {"admin": server.key, "scoped": create_key("ann", "scoped", scope=PROJECT_SCOPE)}
        keys["closed"] = create_key("ann", "closed", scope={"projects": [{"project": "web"}]})
        yield Installation(server, keys)
        assert server.stop() == 0
        assert "Traceback" not in server.log.read_text()


TYPE = {"apiVersion": f"{MANAGEMENT_GROUP}/v1"}


def action(verb: str, resource: str, namespace: str = "", group: str = MANAGEMENT_GROUP) -> Object:
    return {"resourceAttributes": {"verb": verb, "resource": resource, "namespace": namespace, "group": group}}


ACTIONS = [
    action("list", "projects"),
    action("list", "clusters"),
    action("create", "spaceinstances", NAMESPACE),
    action("list", "configmaps", NAMESPACE, ""),
    action("create", "projects"),
    {"nonResourceAttributes": {"verb": "get", "path": "/version"}},
]
ANSWERS = {
    "admin": "yyyyyy",
    "ann": "f-yy-y",
    "bob": "f-y--y",
    "vic": "f----y",
    "eve": "f----y",
    "scoped": "f-yy-y",
}
"""For each action: y if it is allowed, f if it is a filtered list, - if it is denied."""


@pytest.mark.parametrize("who", ANSWERS)
def test_a_batch_has_the_answers_of_single_reviews(installation: Installation, who: str) -> None:
    found = installation.review(who, ACTIONS)
    assert "".join("y" if each["allowed"] else "f" if each.get("filtered") else "-" for each in found) == ANSWERS[who]
    for single, answer in zip(ACTIONS, found, strict=True):
        status = installation.post(who, "selfsubjectaccessreviews", single)["status"]
        assert {name: value for name, value in status.items() if name != "path"} == answer


@pytest.mark.parametrize("who", ANSWERS)
def test_a_filtered_list_is_exactly_one_that_succeeds_without_being_allowed(
    installation: Installation, who: str
) -> None:
    plurals = ("projects", "clusters", "users", "teams", "apps", "spaceinstances", "ownedaccesskeys", "runners")
    for plural, answer in zip(
        plurals, installation.review(who, [action("list", each) for each in plurals]), strict=True
    ):
        code = installation.send(who, "GET", f"{M}/{plural}").status_code
        assert code == (200 if answer["allowed"] or answer.get("filtered") else 403), plural


def test_a_scope_answers_as_a_key_with_that_scope(installation: Installation) -> None:
    expected = installation.review("scoped", ACTIONS)
    assert installation.review("ann", ACTIONS, accessKey="scoped") == expected
    answers = installation.review("ann", ACTIONS, scope=PROJECT_SCOPE)
    for answer in answers:  # the key does not exist yet, so it has no name
        answer["reason"] = answer["reason"].replace("this credential", 'access key "scoped"')
    assert answers == expected


def test_a_batch_needs_authentication_and_a_scope_that_allows_it(installation: Installation) -> None:
    path = f"{M}/selfsubjectaccessreviewbatches"
    assert installation.send("anonymous", "POST", path, {"spec": {"reviews": ACTIONS}}).status_code == 401
    denied = installation.post("closed", "selfsubjectaccessreviewbatches", {"reviews": ACTIONS}, 403)
    assert "allowServiceCli" in denied["message"]
    other = installation.post("eve", "selfsubjectaccessreviewbatches", {"reviews": ACTIONS, "accessKey": "ann"}, 403)
    assert "cannot inspect this access key" in other["message"]
    for method in ("GET", "DELETE"):
        assert installation.send("admin", method, path).status_code == 405


def test_too_many_reviews_are_rejected(installation: Installation) -> None:
    error = installation.post("eve", "selfsubjectaccessreviewbatches", {"reviews": ACTIONS * 34}, 422)
    assert [cause["field"] for cause in error["details"]["causes"]] == ["spec.reviews"]


# --- counts


def count(installation: Installation, who: str, query: str = "") -> dict[str, tuple[int, bool]]:
    response = installation.send(who, "GET", f"{M}/resourcecounts{query}")
    assert response.status_code == 200, response.text
    assert response.json()["kind"] == "ResourceCountList"
    return {each["metadata"]["name"]: (each["count"], each["filtered"]) for each in response.json()["items"]}


def list_path(kind: Kind, namespace: str) -> str:
    root = f"{MANAGEMENT}/apis/{kind.api_version}" if kind.group else CORE
    return f"{root}/namespaces/{namespace}/{kind.plural}" if namespace else f"{root}/{kind.plural}"


@pytest.mark.parametrize("namespace", ["", NAMESPACE, "default"])
@pytest.mark.parametrize("who", ANSWERS)
def test_counts_are_those_of_the_lists(installation: Installation, who: str, namespace: str) -> None:
    expected = {}
    for kind in KINDS:
        if not kind.persisted or kind.conversion is not None or (namespace and not kind.namespaced):
            continue
        response = installation.send(who, "GET", list_path(kind, namespace))
        if response.status_code == 200:
            name = f"{kind.plural}.{kind.group}" if kind.group else kind.plural
            expected[name] = len(response.json()["items"])
        else:
            assert response.status_code == 403
    query = f"?fieldSelector=metadata.namespace%3D{namespace}" if namespace else ""
    for _ in range(2):  # the second time, filtered counts are cached
        assert {name: found for name, (found, _) in count(installation, who, query).items()} == expected


def test_counts_say_what_is_filtered_and_follow_changes(installation: Installation) -> None:
    assert count(installation, "admin")["apps.management.service.sh"] == (3, False)
    assert count(installation, "vic")["apps.management.service.sh"] == (1, True)
    assert "apps.management.service.sh" not in count(installation, "bob")
    path, patch = f"{M}/apps/hidden", {"spec": {"access": [{"users": ["vic"], "verbs": ["get"]}]}}
    with installation.server.client() as client:
        headers = {"Content-Type": "application/merge-patch+json"}
        for body, expected in ((patch, 2), ({"spec": {"access": None}}, 1)):
            assert client.patch(path, json=body, headers=headers).status_code == 200
            assert count(installation, "vic")["apps.management.service.sh"] == (expected, True)


def test_counts_are_a_table_for_kubectl(installation: Installation) -> None:
    table = installation.send(
        "vic", "GET", f"{M}/resourcecounts", Accept="application/json;as=Table;v=v1;g=meta.k8s.io"
    )
    assert [column["name"] for column in table.json()["columnDefinitions"]] == ["Kind", "Group", "Count", "Filtered"]
    assert ["App", MANAGEMENT_GROUP, 1, True] in [row["cells"] for row in table.json()["rows"]]
    listed = installation.send("vic", "GET", f"{M}/resourcecounts", Accept="application/yaml")
    assert listed.headers["content-type"] == "application/yaml" and "kind: ResourceCountList" in listed.text


@pytest.mark.parametrize(
    ("who", "method", "path", "code", "message"),
    [
        ("anonymous", "GET", "", 401, "Unauthorized"),
        ("closed", "GET", "", 403, "allowServiceCli"),
        ("admin", "GET", "?fieldSelector=metadata.name%3Dapps", 400, "field label not supported: metadata.name"),
        ("admin", "GET", "?fieldSelector=metadata.namespace!%3Da", 400, "metadata.namespace=NAME"),
        ("admin", "GET", "?fieldSelector=metadata.namespace%3Da,metadata.namespace%3Db", 400, "only one"),
        ("admin", "GET", "?labelSelector=a%3Db", 400, "no labels"),
        ("admin", "GET", "?limit=x", 400, "limit"),
        ("admin", "GET", "?watch=true", 405, "does not allow this method"),
        ("admin", "GET", "/apps.management.service.sh", 404, "could not find"),
        ("admin", "POST", "", 405, "does not allow this method"),
        ("admin", "DELETE", "", 405, "does not allow this method"),
    ],
)
def test_what_counts_do_not_support_gets_an_error(
    installation: Installation, who: str, method: str, path: str, code: int, message: str
) -> None:
    response = installation.send(who, method, f"{M}/resourcecounts{path}")
    assert (response.status_code, message in response.text) == (code, True), response.text


# --- who may do something


def who_can(installation: Installation, spec: Object) -> dict[str, dict[str, tuple[str, str]]]:
    status = installation.post("admin", "resourceaccessreviews", spec)["status"]
    assert "truncated" not in status
    return {
        field: {each["name"]: (each["via"], each["reason"]) for each in subjects} for field, subjects in status.items()
    }


ADMINISTRATORS = ("administrators", "member of a built-in admin group")


def test_who_can_names_each_subject_and_the_reason(installation: Installation) -> None:
    found = who_can(installation, action("list", "configmaps", NAMESPACE, ""))
    reason = found["groups"]["readers"][1]
    assert 'RoleBinding "read/service-p-web"' in reason
    assert found == {
        "users": {
            "admin": ADMINISTRATORS,
            "ann": ("project member", 'role "admin" in project "web"'),
            "system:serviceaccount:default:robot": ("rbac", found["users"]["system:serviceaccount:default:robot"][1]),
        },
        "groups": {
            "readers": ("rbac", reason),
            "service:admins": ADMINISTRATORS,
            "system:masters": ("administrators", ADMINISTRATORS[1]),
        },
        "teams": {},
    }


def test_who_can_includes_owners_and_their_teams(installation: Installation) -> None:
    attributes = {**action("delete", "apps")["resourceAttributes"], "name": "team-app"}
    found = who_can(installation, {"resourceAttributes": attributes})
    assert found["users"].keys() == {"admin", "eve"}
    assert found["users"]["eve"][0] == found["teams"]["ops"][0] == "owner"


def test_who_can_agrees_with_single_reviews(installation: Installation) -> None:
    for each in ACTIONS:
        expected = {
            user
            for user in ("ann", "bob", "vic", "eve", "admin")
            if installation.post("admin", "subjectaccessreviews", {"user": user, **each})["status"]["allowed"]
        }
        if "resourceAttributes" in each:
            users = who_can(installation, each)["users"].keys()
            assert {name for name in users if not name.startswith("system:")} == expected, each


@pytest.mark.parametrize("who", ["ann", "bob", "vic", "eve", "scoped", "closed"])
def test_who_can_needs_the_permission(installation: Installation, who: str) -> None:
    installation.post(who, "resourceaccessreviews", ACTIONS[0], 403)


def test_who_can_rejects_what_it_does_not_understand(installation: Installation) -> None:
    path = f"{M}/resourceaccessreviews"
    assert installation.send("anonymous", "POST", path, {"spec": ACTIONS[0]}).status_code == 401
    error = installation.post("admin", "resourceaccessreviews", {}, 422)
    assert "exactly one of nonResourceAttributes or resourceAttributes" in error["message"]
    assert installation.send("admin", "GET", path).status_code == 405
