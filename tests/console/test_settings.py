"""The settings of the installation: every one with value, default, source and description, and forms for some."""

from tests.console.browser import Page, role
from tests.console.conftest import SignIn
from tests.console.servers import ADMIN, GROUP, VIEWER, ConsoleServer
from tests.harness.server_process import Server

CONFIG = f"{GROUP}/configs/service-manager-config"
LOGIN_TTL = "auth.loginAccessKeyTTLSeconds"


def row_of(page: Page, name: str) -> str:
    found = [text for text in page.texts("table.settings tr") if text.startswith(name)]
    assert len(found) == 1, found
    return found[0]


def test_a_value_is_changed_and_reset_at_run_time(page: Page, sign_in: SignIn, server: ConsoleServer) -> None:
    sign_in(page, ADMIN)
    page.goto("settings")
    page.wait_for_text("While the server runs", "main")
    assert "the default" in row_of(page, LOGIN_TTL) and "Lifetime of a login in seconds" in row_of(page, LOGIN_TTL)
    page.fill(LOGIN_TTL, "7200")
    page.wait_for_text("seconds (2h)", "table.settings")
    page.click(role("button", f"Save {LOGIN_TTL}"))
    page.wait_for_text(f"{LOGIN_TTL} is saved", ".toasts")
    page.wait_until(lambda: "the Config" in row_of(page, LOGIN_TTL), "the source is the Config")
    page.fill("auth.password.disabled", "yes")
    page.click(role("button", "Save auth.password.disabled"))
    page.wait_for_text("auth.password.disabled is saved", ".toasts")
    assert server.send("GET", CONFIG)["status"]["auth"] == {
        "loginAccessKeyTTLSeconds": 7200,
        "password": {"disabled": True},
    }
    for name in ("auth.password.disabled", LOGIN_TTL):
        page.click(role("button", f"Use the default of {name}"))
        page.wait_until(lambda name=name: "the Config" not in row_of(page, name), "the default applies")  # type: ignore[misc]
    assert "raw" not in server.send("GET", CONFIG)["spec"]


def test_a_value_that_the_server_rejects_is_explained(page: Page, sign_in: SignIn) -> None:
    sign_in(page, ADMIN)
    page.goto("settings")
    page.fill("auth.directTokenTTLSeconds", "500")
    page.click(role("button", "Save auth.directTokenTTLSeconds"))
    page.wait_for_text("auth.directTokenTTLSeconds is saved", ".toasts")
    page.fill("auth.directTokenMaxTTLSeconds", "400")
    page.click(role("button", "Save auth.directTokenMaxTTLSeconds"))
    page.wait_for_text("500 is more than auth.directTokenMaxTTLSeconds, 400", "section.error")
    page.click(role("button", "Use the default of auth.directTokenTTLSeconds"))
    page.wait_gone("section.error")


def test_settings_of_the_start_say_where_they_come_from(page: Page, sign_in: SignIn) -> None:
    sign_in(page, ADMIN)
    page.goto("settings")
    page.wait_for_text("At the server's start", "main")
    page.fill("Filter settings", "tls_cert")
    page.wait_until(lambda: "tls_cert" in page.texts("table.settings code"), "the setting is found")
    page.wait_until(lambda: "login_key_ttl" not in page.texts("table.settings code"), "others are hidden")
    assert "--tls-cert or FAIRLEAD_TLS_CERT" in row_of(page, "tls_cert")
    page.fill("Filter settings", "no such setting")
    page.wait_for_text("No setting matches.", "main")


def test_the_list_is_for_administrators_and_has_a_source_for_each_value(server: ConsoleServer) -> None:
    found = server.send("GET", "/settings")
    by_name = {each["name"]: each for each in found["start"]}
    assert by_name["tls_cert"]["source"] and by_name["login_key_ttl"]["source"] == ""
    assert all(each["description"] and each["default"] is not None for each in found["start"])
    assert {"auth.connectors", "auth.workloadIdentity", "audit.level"} <= {each["name"] for each in found["runTime"]}
    assert status_of(server.server, server.log_in(VIEWER)) == 403
    assert status_of(server.server, None) in (401, 403)


def status_of(server: Server, key: str | None) -> int:
    with server.client(key) as client:
        return int(client.get("/settings").status_code)
