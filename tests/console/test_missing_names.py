"""Names of users, teams and roles that do not exist: the console says so, and offers to create them."""

from tests.console.browser import Page, role
from tests.console.conftest import SignIn
from tests.console.servers import ADMIN, PROJECT, RBAC, VIEWER, ConsoleServer


def test_a_member_that_does_not_exist_is_marked_and_can_be_created(page: Page, sign_in: SignIn) -> None:
    sign_in(page, ADMIN)
    page.goto(f"projects/{PROJECT}?view=members")
    page.fill("Name", "mry")
    page.click(role("button", "Add"))
    page.wait_for_text('There is no user "mry"; it is a member as soon as it exists', ".warnings")
    page.wait_for_text("There is no such user", "tbody")
    assert page.count("tbody a[href$='/users/mry']") == 0  # there is no such page
    page.reload()
    page.wait_for_text("There is no such user", "tbody")
    page.click(role("link", "Create the user mry"))
    page.wait_until(lambda: page.path.endswith("/users/~new?name=mry"), "the form for a user is shown")
    page.wait_until(lambda: page.value("Name") == "mry", "the name is filled in")


def test_members_who_may_not_list_users_see_no_marks(page: Page, sign_in: SignIn) -> None:
    sign_in(page, VIEWER)
    page.goto(f"projects/{PROJECT}?view=members")
    page.wait_for("tbody tr")
    page.wait_idle()
    assert "There is no such user" not in page.text("tbody")


def test_a_binding_of_names_that_do_not_exist_says_so(page: Page, sign_in: SignIn, server: ConsoleServer) -> None:
    sign_in(page, ADMIN)
    page.goto(
        f"rolebindings.rbac.authorization.k8s.io/~new?form=all&name=typo&namespace=service-p-{PROJECT}"
        "&roleRef.kind=ClusterRole&roleRef.name=audtor"
    )
    page.wait_for(role("button", "Check"))
    page.wait_idle()
    page.click(role("button", "Check"))
    page.wait_for_text('There is no ClusterRole "audtor"; the binding grants nothing until it exists', ".warnings")
    page.wait_for_text('did you mean "auditor"?', ".warnings")
    page.wait_for(role("link", "Create the cluster role audtor"))
    page.click(role("button", "Create"))
    page.wait_for_text('There is no ClusterRole "audtor"', ".toasts")
    assert server.send("GET", f"{RBAC}/namespaces/service-p-{PROJECT}/rolebindings/typo")["roleRef"]["name"] == "audtor"
