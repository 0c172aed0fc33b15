"""What lists without objects say, to readers with different rights: only what is true, and what to do next."""

import pytest

from tests.console.browser import Page, role
from tests.console.conftest import SignIn
from tests.console.servers import ADMIN, AUDITOR, OUTSIDER, VIEWER


@pytest.mark.parametrize(
    ("user", "path", "title", "text"),
    [
        (
            OUTSIDER,
            "projects",
            "There are no projects that you may see",
            "You see the projects that you are a member of. Ask an owner of a project to add you.",
        ),
        (
            VIEWER,
            "appinstances",
            "There are no installed apps that you may see",
            "You see only the installed apps that you own, or that others share with you. There may be more. "
            "You may not create one here: ask an owner of the project, or an administrator.",
        ),
        (AUDITOR, "appinstances", "There are no installed apps yet", "You may see all installed apps, and none exist."),
        (ADMIN, "appinstances", "There are no installed apps yet", "Make the first installed app here"),
    ],
)
def test_an_empty_list_says_what_its_reader_may_see_and_do(
    page: Page, sign_in: SignIn, user: str, path: str, title: str, text: str
) -> None:
    sign_in(page, user)
    page.goto(path)
    page.wait_for_text(title, ".empty")
    page.wait_for_text(text, ".empty")
    page.wait_idle()
    if user == ADMIN:
        page.wait_for(".empty a.button")
    else:
        page.click(role("link", "Why may I not create one?"))
        page.wait_for_text("No, denied", "main")


def test_the_card_of_own_objects_says_what_to_do_without_any_rights(page: Page, sign_in: SignIn) -> None:
    sign_in(page, OUTSIDER)
    page.goto("")
    page.wait_for_text("to make you a member with the role user.", ".overview .card")


def test_the_card_of_own_objects_offers_only_what_the_user_may_create(page: Page, sign_in: SignIn) -> None:
    sign_in(page, VIEWER)
    page.goto("")
    page.wait_for_text("you may create nothing yet", ".overview .card")
    assert page.count(role("link", "Create a space")) == 0
    sign_in(page, ADMIN)
    page.goto("")
    page.wait_for(role("link", "Create a space"))
