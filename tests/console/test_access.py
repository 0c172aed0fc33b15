"""Access in the console: May I?, access keys with a scope, users and teams."""

import json
from typing import Any

import httpx
import pytest

from fairlead.authn.bootstrap import ADMIN_KEY
from tests.console.browser import Page, role
from tests.console.conftest import SignIn
from tests.console.servers import (
    ADMIN,
    GROUP,
    LOGIN_COOKIE,
    OUTSIDER,
    OWNER,
    PROJECT,
    VIEWER,
    ConsoleServer,
    create_user,
)

NAMESPACE = f"service-p-{PROJECT}"
HOSTILE = "<img src=x onerror=alert(1)>"
KEY = "ownedaccesskeys"
READ_ONLY = {"allowServiceCli": True, "rules": [{"verbs": ["get", "list", "watch"]}]}


def create_team(server: ConsoleServer, name: str, *users: str) -> None:
    spec = {"displayName": HOSTILE, "users": list(users)}
    team = {"apiVersion": "management.service.sh/v1", "kind": "Team", "metadata": {"name": name}, "spec": spec}
    server.create(f"{GROUP}/teams", team)


def create_key(server: ConsoleServer, name: str, user: str, **fields: Any) -> str:
    """Creates a key, without a scope unless there is one in the fields, and returns its value."""
    spec = {"user": user, "ttl": 3600, **fields}
    key = {"apiVersion": "management.service.sh/v1", "kind": "OwnedAccessKey", "metadata": {"name": name}}
    return str(server.create(f"{GROUP}/{KEY}", {**key, "spec": spec})["spec"]["key"])


def request_with(server: ConsoleServer, key: str, method: str, path: str) -> httpx.Response:
    with server.server.client(key) as client:
        return client.request(method, path)


def click_action(page: Page, title: str) -> None:
    """Clicks a button of the header, as soon as it is known that the user may."""
    page.wait_until(lambda: page.attribute(role("button", title), "aria-disabled") is None, f"{title} is enabled")
    page.click(role("button", title))


def test_a_read_only_key_is_tried_before_it_exists_and_cannot_delete(
    page: Page, sign_in: SignIn, server: ConsoleServer
) -> None:
    sign_in(page, ADMIN)
    page.goto(f"{KEY}/~new")
    page.fill("Display name", "Dashboard")
    page.check("Read only")
    page.wait_for_text("read everything", within=".scope-words")

    page.fill("Verb", "delete")
    page.fill("Kind", "projects")
    page.fill("Name", PROJECT)
    page.click(role("button", "Ask"))
    page.wait_for_text("No, denied", within=".tester")
    page.wait_for_text("Scope of the access key: denies", within=".decision-steps")

    click_action(page, "Create")
    page.wait_for_text("This is shown only once")
    value = page.text(".key-value")
    assert value.startswith("fairlead_")
    assert value not in page.eval("[...document.querySelectorAll('pre')].map((each) => each.textContent).join()")
    page.click(role("button", "Done"))
    page.wait_for_text("read everything", within=".scope-words")
    assert value not in page.eval("document.documentElement.outerHTML")
    assert value not in json.dumps(page.eval("[{...localStorage}, {...sessionStorage}, location.href]"))

    assert request_with(server, value, "GET", f"{GROUP}/projects/{PROJECT}").status_code == 200
    assert request_with(server, value, "DELETE", f"{GROUP}/projects/{PROJECT}").status_code == 403


def test_a_key_for_one_project_is_described_in_words(page: Page, sign_in: SignIn, server: ConsoleServer) -> None:
    sign_in(page, OWNER)
    page.goto(f"{KEY}/~new")
    page.fill("Display name", "Build server")
    page.check("Only some projects, spaces or clusters")
    page.eval("document.querySelector('.entry-row span input').focus()")
    page.type(PROJECT)
    page.wait_for_text(f'read the project "{PROJECT}"', within=".scope-words")
    page.check("Something else, as YAML")
    page.wait_until(lambda: PROJECT in page.value("Scope"), "the scope is shown as YAML")
    page.fill("Lifetime", "a day")
    click_action(page, "Create")
    page.wait_for_text("This is shown only once")
    page.press("Escape")
    page.wait_for_text(f'read the project "{PROJECT}"', within=".scope-words")
    keys = server.send("GET", f"{GROUP}/{KEY}")["items"]
    (key,) = (each for each in keys if each["spec"].get("displayName") == "Build server")
    assert key["spec"]["user"] == OWNER
    assert key["spec"]["ttl"] == 86400
    assert key["spec"]["scope"] == {"allowServiceCli": True, "projects": [{"project": PROJECT}]}


def test_a_key_is_rotated_and_disabled(page: Page, sign_in: SignIn, server: ConsoleServer) -> None:
    old = create_key(server, "rotated", ADMIN)
    sign_in(page, ADMIN)
    page.goto(f"{KEY}/rotated")
    click_action(page, "Rotate…")
    page.fill("The old value stays valid for", "no time: revoke it at once")
    page.click(role("button", "Rotate"))
    page.wait_for_text("This is shown only once")
    new = page.text(".key-value")
    page.click(role("button", "Done"))
    path = f"{GROUP}/projects/{PROJECT}"
    assert [request_with(server, key, "GET", path).status_code for key in (old, new)] == [401, 200]

    click_action(page, "Disable")
    page.click("dialog .danger")
    page.wait_for_text("Disabled: requests with it are rejected.")
    assert request_with(server, new, "GET", path).status_code == 401
    click_action(page, "Enable")
    page.wait_gone(".notice")
    assert request_with(server, new, "GET", path).status_code == 200


def test_the_list_of_keys_marks_expired_and_disabled_ones(page: Page, sign_in: SignIn, server: ConsoleServer) -> None:
    create_key(server, "list-valid", ADMIN)
    create_key(server, "list-disabled", ADMIN, disabled=True)
    sign_in(page, ADMIN)
    page.goto(f"{KEY}?q=list-")
    page.wait_for_text("list-valid", ".vtable-body")
    create_key(server, "list-expired", ADMIN, ttl=1)  # the list is live: the row changes when the key expires

    def rows() -> dict[str, str]:
        return {text.split()[0]: text for text in page.texts(".vtable-body .vtable-row")}

    page.wait_until(lambda: "Expired" in rows().get("list-expired", ""), "the key is shown as expired")
    assert "Disabled" in rows()["list-disabled"]
    assert "Active" in rows()["list-valid"] and "in 5" in rows()["list-valid"]  # minutes
    page.goto(f"users/{ADMIN}")
    page.wait_for_text("list-expired expired", "main")
    page.wait_for_text("list-disabled disabled, expires in", "main")


def test_the_page_of_the_first_key_says_when_it_expires(page: Page, sign_in: SignIn) -> None:
    sign_in(page, ADMIN)
    page.goto(f"{KEY}/{ADMIN_KEY}")
    page.wait_for_text("in 23h (unless there is another way in by then)", "main")


def test_may_i_answers_for_the_scoped_key_of_the_session(page: Page, server: ConsoleServer) -> None:
    page.allow_errors("403")
    page.set_cookie(LOGIN_COOKIE, create_key(server, "narrow", ADMIN, scope=READ_ONLY))
    question = f"resource=projects&group=management.service.sh&name={PROJECT}"
    page.goto(f"access?verb=delete&{question}")
    page.wait_for_text('This session uses the access key "narrow", whose scope restricts it.', ".notice")
    page.wait_for_text(f'May I, with the key "narrow", delete the project "{PROJECT}"?', ".answer")
    page.wait_for_text("No, denied", ".answer")
    page.wait_for_text("The scope of the access key denies it", ".answer")
    page.wait_for_text("read everything", ".scope-words")
    assert page.count(role("link", "Bind a role to the user or a team")) == 0
    page.goto(f"access?verb=get&{question}")
    page.wait_for_text("Yes, allowed", ".answer")


def test_a_request_that_a_scope_denied_leads_to_the_question_about_the_key(
    page: Page, sign_in: SignIn, server: ConsoleServer
) -> None:
    value = create_key(server, "scoped-bot", ADMIN, scope=READ_ONLY)
    assert request_with(server, value, "DELETE", f"{GROUP}/projects/kept-by-scope").status_code == 403
    sign_in(page, ADMIN)
    page.goto("audit?what=denied&name=kept-by-scope")
    page.click(role("link", "project kept-by-scope"))
    page.click(role("link", "Open in May I?"))
    page.wait_for_text('May the key "scoped-bot" delete the project "kept-by-scope"?', ".answer")
    page.wait_for_text("No, denied", ".answer")
    page.wait_for_text("The scope of the access key denies it", ".answer")


def test_a_viewer_reads_why_not_and_whom_to_ask(page: Page, sign_in: SignIn) -> None:
    sign_in(page, VIEWER)
    page.goto(f"access?verb=delete&resource=spaceinstances&group=management.service.sh&namespace={NAMESPACE}")
    page.wait_for_text("No, denied")
    because = "You have the role viewer in Storefront, which is not enough; the role admin of the project may"
    page.wait_for_text(because, within=".answer > p.wrap")
    assert "Members of the project" not in "".join(page.texts(".decision-steps"))  # without an opinion: folded
    page.click(".answer summary")
    page.wait_for_text("Members of the project: no opinion", within=".decision-steps")
    page.wait_for_text("You may not list who can")
    page.wait_for(role("link", OWNER))
    page.fill("Verb", "list")
    page.fill("Project or namespace", PROJECT)  # the name of a project stands for its namespace
    page.click(role("button", "Ask"))
    page.wait_for_text("Yes, but only some of the objects")
    page.wait_for_text("The list shows the objects that the user may get", within=".answer > p.wrap")
    page.wait_for_text("Lists: shows the objects that the user may get", within=".decision-steps")
    assert "denies" not in page.text(".answer")
    assert page.eval("new URLSearchParams(location.search).get('namespace')") == NAMESPACE


def test_an_administrator_asks_for_others_and_lists_who_can(page: Page, sign_in: SignIn) -> None:
    sign_in(page, ADMIN)
    question = f"verb=delete&resource=spaceinstances&group=management.service.sh&namespace={NAMESPACE}&name=x"
    page.goto(f"access?{question}&user={VIEWER}")
    page.wait_for_text(f"May {VIEWER} delete the space")
    page.wait_for_text("No, denied")
    page.click(role("button", "List who can"))
    page.wait_for_text(OWNER, within=".who")
    page.wait_for_text("Administrators", within=".who")
    assert VIEWER not in page.texts(".who a")


def test_the_answer_names_the_member_who_is_missing_and_the_user_who_does_not_exist(
    page: Page, sign_in: SignIn
) -> None:
    sign_in(page, ADMIN)
    question = f"verb=create&resource=spaceinstances&group=management.service.sh&namespace={NAMESPACE}"
    page.goto(f"access?{question}&user={OUTSIDER}")
    because = f"is no member of Storefront; the roles user and admin of the project may. Add {OUTSIDER}"
    page.wait_for_text(because, ".answer > p.wrap")
    page.wait_for(role("link", f"Change the role in the members of the project {PROJECT}"))
    page.goto(f"access?{question}&user=mry")
    page.wait_for_text('There is no user "mry"', ".warnings")
    page.wait_for(role("link", "Create the user mry"))


@pytest.mark.parametrize("width", [360, 1024, 1280])
def test_the_steps_of_a_decision_are_whole_words_at_every_width(page: Page, sign_in: SignIn, width: int) -> None:
    page.set_size(width, 800)
    sign_in(page, ADMIN)
    page.goto(f"access?verb=delete&resource=projects&group=management.service.sh&name={PROJECT}")
    page.click(".answer summary")
    lines = "[...document.querySelectorAll('.decision-steps strong')].map((each) => each.getClientRects().length)"
    page.wait_until(lambda: len(page.eval(lines)) > 5, "the steps are shown")
    assert max(page.eval(lines)) <= 2


def test_a_user_without_rights_gets_answers_and_no_list(page: Page, sign_in: SignIn, server: ConsoleServer) -> None:
    page.allow_errors("403")
    sign_in(page, OUTSIDER)
    page.goto("access?verb=create&resource=clusters&group=management.service.sh")
    page.wait_for_text("No, denied")
    page.wait_for_text("Ask an administrator of this installation.")
    page.fill("Kind", "nonsense")
    page.click(role("button", "Ask"))
    page.wait_for_text("Choose a kind of the list")
    page.wait_until(lambda: page.attribute("[name=user]", "disabled") is not None, "asking for others is disabled")
    page.goto(f"access?verb=create&resource=clusters&group=management.service.sh&user={ADMIN}")
    page.wait_for_text("subjectaccessreviews", within=".error")


def test_a_denied_request_leads_to_its_decision(page: Page, sign_in: SignIn) -> None:
    page.allow_errors("403")
    sign_in(page, OUTSIDER)
    page.goto(f"projects/{PROJECT}")
    page.click(role("link", "Why?"))
    page.wait_for_text("The request was denied")
    page.click(role("link", "Open in May I?"))
    page.wait_for_text(f'May I get the project "{PROJECT}"?')
    page.wait_for_text("No, denied")


def test_a_denied_request_of_another_user_leads_to_the_members_of_the_project(
    page: Page, sign_in: SignIn, server: ConsoleServer
) -> None:
    cookie = {"Cookie": f"{LOGIN_COOKIE}={server.log_in(VIEWER)}", "Origin": server.url}
    with server.server.client(None) as client:
        space = f"{GROUP}/namespaces/{NAMESPACE}/spaceinstances/denied"
        assert client.delete(space, headers=cookie).status_code == 403
    sign_in(page, ADMIN)
    page.goto(f"audit?what=denied&user={VIEWER}")
    page.click(role("link", "space denied"))
    page.wait_for_text(f"{VIEWER} was not allowed to delete the space denied", "h1")
    page.click(role("link", "Open in May I?"))
    page.wait_for_text(f'May {VIEWER} delete the space "denied"', ".answer")
    page.wait_for_text("No, denied", ".answer")
    page.wait_for(role("link", "Bind a role to the user or a team"))
    page.click(role("link", f"Change the role in the members of the project {PROJECT}"))
    page.wait_for(role("combobox", f"Role: {VIEWER}"))


def test_members_of_a_team_are_added_and_removed(page: Page, sign_in: SignIn, server: ConsoleServer) -> None:
    create_team(server, "rowers", VIEWER)
    sign_in(page, ADMIN)
    page.goto("teams/rowers")
    page.fill("User", OUTSIDER)
    page.press("Enter")
    page.wait_for(role("button", f"Remove {OUTSIDER}"))
    page.click(role("button", f"Remove {VIEWER}"))
    page.wait_gone(role("button", f"Remove {VIEWER}"))
    assert server.send("GET", f"{GROUP}/teams/rowers")["spec"]["users"] == [OUTSIDER]


def test_a_member_sees_the_team_and_why_it_cannot_be_changed(
    page: Page, sign_in: SignIn, server: ConsoleServer
) -> None:
    create_team(server, "readers", VIEWER)
    sign_in(page, VIEWER)
    page.goto("teams/readers")
    page.wait_for_text("You may not change the members:")
    assert page.count(role("button", f"Remove {VIEWER}")) == 0


def test_the_page_of_a_user_lists_projects_and_keys(page: Page, sign_in: SignIn, server: ConsoleServer) -> None:
    create_key(server, "laptop", VIEWER)
    sign_in(page, ADMIN)
    page.goto(f"users/{VIEWER}")
    page.wait_for(role("link", "laptop"))
    page.wait_for_text("viewer", within="main")
    click_action(page, "Set password…")
    page.fill("New password", "short")
    page.press("Enter")
    page.allow_errors("422", "400")
    page.wait_for(".error")
    page.fill("New password", "another horse battery staple")
    page.press("Enter")
    page.wait_for_text("The password is set")
    server.log_in(VIEWER, "another horse battery staple")


def test_a_disabled_user_is_locked_out_until_enabled(page: Page, sign_in: SignIn, server: ConsoleServer) -> None:
    create_user(server, "leaver")
    key = create_key(server, "of-leaver", "leaver")
    sign_in(page, ADMIN)
    page.goto("users/leaver")
    click_action(page, "Disable")
    page.click("dialog .danger")
    page.wait_for_text("Disabled: the user cannot sign in.")
    assert request_with(server, key, "GET", f"{GROUP}/users/leaver").status_code == 401
    click_action(page, "Enable")
    page.wait_gone(".notice")
    assert request_with(server, key, "GET", f"{GROUP}/users/leaver").status_code == 200


def test_a_user_without_rights_cannot_set_passwords_of_others(page: Page, sign_in: SignIn) -> None:
    page.allow_errors("403")
    sign_in(page, OUTSIDER)
    page.goto(f"users/{OUTSIDER}")
    click_action(page, "Set password…")  # the own password is changed on the page of the account
    page.wait_until(lambda: page.path.endswith("/account"), "the page of the account is shown")
    page.goto(f"users/{ADMIN}")
    page.wait_for(".error")
    assert page.count(role("button", "Set password…")) == 0
