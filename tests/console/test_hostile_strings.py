"""What users and programs write stays text on every page: markup, links that run code, escape codes, long words.

The objects have hostile strings in all fields that accept them: see hostile_objects.py. After each page, nothing has
run, nothing of the strings is an element, and the page is as wide as the window. `page` checks that there was no
violation of the content security policy, and no error in the console.
"""

import json
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from fairlead.core.objects import Object
from fairlead.registry.kind import Kind
from tests.console.browser import DEFAULT_SIZE, Page
from tests.console.conftest import SignIn
from tests.console.hostile_objects import KINDS, MARKUP, NAMESPACE, ODD, VARIANTS, create_hostile, find_hostile
from tests.console.servers import ADMIN, GROUP, PROJECT, ConsoleServer, set_password
from tests.fake_cluster.exchange import CannedResponse
from tests.fake_cluster.pods import POD_PATH, serve_pod
from tests.fake_cluster.server import FakeCluster
from tests.harness.eventually import wait_until
from tests.harness.gateways import connect_cluster, is_online

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

Created = dict[str, dict[str, Object]]
"""By the name of the kind and the variant."""
FIND_EFFECTS = """(() => {
  const count = (selector) => document.querySelectorAll(selector).length;
  const main = document.querySelector("main") ?? document.body;
  return {
    ran: window.hacked !== undefined,
    elements: count("img[src=x], [onerror], [onload], [onclick], iframe, object, embed, base, form[action]"),
    scripts: count("script:not([src*='assets/'])"),
    links: count("a[href^='javascript:' i], a[href^='data:' i]"),
    images: count("img:not([src*='assets/']):not([src^='data:image/'])"),
    sideways: Math.max(0, document.documentElement.scrollWidth - innerWidth, main.scrollWidth - main.clientWidth),
  };
})()"""
GO = """(path) => {
  for (const each of document.querySelectorAll("main .content")) each.dataset.left = "";
  history.pushState(null, "", `/console/${path}`);
  window.dispatchEvent(new PopStateEvent("popstate"));
}"""
PHONE = (360, 740)
DELETE = ".actions button.danger"
VIEWS = ("", "?view=events", "?view=form", "?view=changes", "?view=details", "?view=yaml")
LINES = (MARKUP, "\x1b[31mred\x1b[0m\x1b]0;title\x07\x1b]52;c;aGFja2Vk\x07\x1b[2J\x1b[1;1Hafter", ODD)
LOG = "".join(f"2026-11-17T01:00:0{second}.5Z {line}\n" for second, line in enumerate(LINES))


@pytest.fixture(scope="module")
def hostile(server: ConsoleServer) -> Created:
    with server.server.client() as client:
        created = {kind.name: {each: create_hostile(client, kind, each) for each in VARIANTS} for kind in KINDS}
        icon = "https://192.0.2.1/icon.png"  # must not be loaded
        link = f"[{MARKUP}](javascript:window.hacked=1) ![x](x)"
        readme = f"# {MARKUP}\n\n{ODD}\n\n{link} `{MARKUP}`\n\n```\n{MARKUP}\n```\n"
        server.send("PATCH", f"{GROUP}/apps/hostile-odd", {"spec": {"icon": icon, "readme": readme}}, patch=True)
    return created


@pytest.fixture
def admin(page: Page, sign_in: SignIn, hostile: Created) -> Iterator[Page]:
    sign_in(page, ADMIN)
    page.goto("about")
    page.wait_for("main .content")
    yield page
    assert page.dialogs == []


def visit(page: Page, path: str) -> list[str]:
    """Shows a page as a link does, without loading the console again. Returns its problems, also those on a phone."""
    page.eval(f"({GO})({json.dumps(path)})")
    problems = find_effects(page, path)
    page.set_size(*PHONE)
    problems += find_effects(page, f"{path} on a phone")
    page.set_size(*DEFAULT_SIZE)
    return problems


def find_effects(page: Page, what: str) -> list[str]:
    page.wait_for("main .content:not([data-left])", timeout=30)
    page.wait_idle(0.2, timeout=30)
    found = page.eval(FIND_EFFECTS)
    return [f"{what}: {name} {value}" for name, value in found.items() if value]


def page_of(kind: Kind, obj: Object) -> str:
    names = (kind.namespaced and NAMESPACE, obj["metadata"]["name"])
    return "/".join([segment_of(kind), *(quote(name, safe="") for name in names if name)])


def segment_of(kind: Kind) -> str:
    return kind.plural if kind.group in ("", "management.service.sh") else f"{kind.plural}.{kind.group}"


def test_every_kind_has_hostile_strings_in_its_free_texts(hostile: Created) -> None:
    for kind in KINDS:
        fields = set(find_hostile(hostile[kind.name]["markup"]))
        texts = {"displayName", "description"} & kind.fields.get("spec", {}).get("properties", {}).keys()
        free = {f"spec.{name}" for name in texts}
        assert free | {"metadata.annotations.example.com/note", "metadata.managedFields[].manager"} <= fields, kind.name


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.plural)
def test_strings_of_every_kind_stay_text(admin: Page, hostile: Created, kind: Kind) -> None:
    problems = visit(admin, segment_of(kind)) + visit(admin, f"{segment_of(kind)}/~new")
    for variant, obj in hostile[kind.name].items():
        for view in VIEWS:
            problems += visit(admin, page_of(kind, obj) + view)
            if not view and variant == "markup":
                admin.wait_for_text(MARKUP[:60], "main")
    assert not problems, "\n".join(problems)


def test_strings_stay_text_on_pages_that_are_made_by_hand(admin: Page) -> None:
    project, question = f"~new?project={PROJECT}", quote(MARKUP, safe="")
    paths = (
        *("", "audit", "audit?what=all", f"audit?user={question}", "account", "settings", "kinds", "about", question),
        *("apps", "apps/hostile-odd", "clusters", "access", f"access?verb={question}&resource={question}"),
        *(f"projects/hostile-{variant}?view=members" for variant in VARIANTS),
        *(f"spaceinstances/{project}", f"devpodworkspaceinstances/{project}", f"appinstances/{project}"),
        f"users?q={question}",
    )
    problems = [problem for path in paths for problem in visit(admin, path)]
    assert not problems, "\n".join(problems)


def test_strings_stay_text_in_the_page_of_a_request(admin: Page, server: ConsoleServer) -> None:
    """The user agent and the field manager of the requests are hostile."""
    [event] = server.send("GET", f"{GROUP}/auditevents?fieldSelector=objectRef.resource%3Dteams,verb%3Dcreate&limit=1")[
        "items"
    ]
    assert event["userAgent"] == MARKUP
    admin.goto(f"audit/{event['metadata']['name']}")
    assert find_effects(admin, "the page of a request") == []
    admin.wait_for_text("<img src=x onerror", "main")


def test_strings_stay_text_in_the_palette_and_in_dialogs(admin: Page) -> None:
    admin.goto("projects/hostile-markup")
    admin.wait_for(DELETE)
    admin.press("Control+k")
    admin.wait_for("dialog.palette")
    admin.type("<img src=x onerror=1> hostile")
    assert find_effects(admin, "the palette") == []
    admin.press("Escape", "Escape")  # the first one empties the field
    admin.wait_gone("dialog.palette")
    admin.click(DELETE)
    admin.wait_for("dialog[open]")
    assert find_effects(admin, "a dialog") == []


def test_the_name_of_the_user_stays_text(page: Page, server: ConsoleServer, hostile: Created, sign_in: SignIn) -> None:
    spec = dict.fromkeys(("passwordRef", "codesRef", "issuer", "subject"))
    server.send("PATCH", f"{GROUP}/users/hostile-markup", {"spec": spec}, patch=True)
    set_password(server, "hostile-markup")
    login = server.send("GET", f"{GROUP}/users/hostile-markup")["spec"]["username"]
    sign_in(page, login)
    for path in ("", "account"):
        page.goto(path)
        assert find_effects(page, path) == []
        page.wait_for_text(MARKUP[:60])


def test_lines_of_logs_are_inert(admin: Page, server: ConsoleServer) -> None:
    with FakeCluster() as cluster, server.server.client() as client:
        serve_pod(cluster)
        cluster.set_response(f"{POD_PATH}/log", CannedResponse(200, LOG.encode(), "text/plain"))
        connect_cluster(client, "oslo", cluster.build_kubeconfig())
        wait_until(lambda: is_online(client, "oslo"), 20, what="oslo is online")
        admin.goto("clusters/oslo/~browse/pods/default/p?view=logs")
        admin.wait_for_text(MARKUP[:60], ".log")
        admin.wait_for_text("red", ".log")
        assert find_effects(admin, "a log") == []
        assert "\x1b" not in admin.text(".log") and admin.eval("document.title").endswith("Fairlead")
