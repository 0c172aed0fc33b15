"""docs/tutorials/sso.md, on a server of its own and with a real provider in the place of Keycloak."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from fairlead.core.crypto.certificates import Certificates
from tests.docs.blocks import Block, Command, read_blocks
from tests.docs.script import Step, find_wrong_output
from tests.harness.server_process import TIMEOUT_SECONDS
from tests.sso.deployments import CANARY, Deployment, running_deployment
from tests.sso.providers.processes import NodeProvider
from tests.sso.visits import Visitor

PAGE = "docs/tutorials/sso.md"
CONNECTOR = "keycloak"
ISSUER = "https://localhost:9444/realms/acme"
BROWSER, FAILURE = "fairlead user list", "fairlead context use admin"
"""The first commands after a sign-in of Ada, and after the one of Eve that fails."""
CODE = re.compile(r"code: ([A-Z]{4}-[A-Z]{4})")


@dataclass(frozen=True, slots=True)
class Reader:
    """Someone who types the commands of the page, and has a browser."""

    deployment: Deployment
    provider: NodeProvider
    browser: Visitor
    folder: Path
    kubectl: Path

    def type_block(self, block: Block) -> Iterator[str]:
        """Runs the commands of a block, and returns what is wrong with the output on the page."""
        for command in block.commands():
            if command.text == BROWSER:
                assert self.sign_in(self.browser, "ada") == "/console/"
            if command.text == FAILURE:
                with Visitor(self.deployment.ca_file) as browser:
                    assert self.sign_in(browser, "eve").endswith(f"signInError=no_rule_matched&connector={CONNECTOR}")
            output = self.folder / "output"
            output.write_text(self.type(command, block.exit_code_of(command)))
            if found := find_wrong_output(Step(block, command, output)):
                yield found

    def type(self, command: Command, expected_code: int) -> str:
        process = subprocess.Popen(
            ["bash", "-c", f"set -eo pipefail\n{self.replace_addresses(command.text)}"],
            cwd=self.folder,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout is not None
        shown = process.stdout.readline() if "--device" in command.text else ""
        if shown:
            self.approve(shown)
        rest, _ = process.communicate(timeout=2 * TIMEOUT_SECONDS)
        assert process.returncode == expected_code, f"{command.text}\n{shown}{rest}"
        return shown + rest

    def environment(self) -> dict[str, str]:
        path = ":".join((str(Path(sys.executable).parent), str(self.kubectl.parent), "/usr/bin", "/bin"))
        kubeconfig = str(self.folder / ".local/share/fairlead/admin.kubeconfig")
        inherited = {key: value for key, value in os.environ.items() if key in ("TZ", "TMPDIR")}
        home = {"HOME": str(self.folder), "KUBECONFIG": kubeconfig, "COLUMNS": "200"}
        return inherited | home | {"PATH": path, "LANG": "C.UTF-8"}

    def replace_addresses(self, text: str) -> str:
        """This provider has groups only for those who ask for them, which Keycloak would refuse."""
        scopes = "[openid, profile, email, groups, offline_access]"
        text = text.replace("    clientId: fairlead", f"    clientId: fairlead\n    scopes: {scopes}")
        address = urlsplit(self.deployment.url).netloc
        return text.replace(ISSUER, self.provider.issuer).replace("127.0.0.1:8443", address)

    def sign_in(self, browser: Visitor, name: str) -> str:
        """Where the browser is afterwards."""
        location: str = self.deployment.sign_in(browser, CONNECTOR, name).headers["location"]
        return location

    def approve(self, line: str) -> None:
        """Types the code that the command line shows into the console."""
        found = CODE.search(line)
        assert found is not None, line
        answer = self.browser.client.post(
            f"{self.deployment.url}/auth/device/decision",
            json={"userCode": found[1], "approve": True},
            headers={"Origin": self.deployment.url},
        )
        assert answer.status_code == 200, answer.text


@pytest.fixture
def deployment(tmp_path: Path, certificates: Certificates) -> Iterator[Deployment]:
    with running_deployment(tmp_path, certificates) as deployment:
        yield deployment


@pytest.fixture
def reader(
    deployment: Deployment,
    node_provider: NodeProvider,
    component: Callable[[str], Path],
    tmp_path: Path,
) -> Iterator[Reader]:
    """With what Keycloak's side of the page leaves behind: a client with its secret, a certificate and two users."""
    node_provider.set_clients(deployment.client_of(CONNECTOR))
    node_provider.set_account("ada", preferred_username="ada", email="ada@example.com", groups=["engineering"])
    node_provider.set_account("eve", preferred_username="eve", email="eve@example.com", groups=[])
    folder = tmp_path / "home"
    data = folder / ".local/share/fairlead"
    (data / "tls").mkdir(parents=True)
    (data / "admin.kubeconfig").write_bytes((deployment.audit_folder / "admin.kubeconfig").read_bytes())
    (data / "tls/ca.crt").write_text(Path(deployment.ca_file).read_text())
    (folder / "client-secret").write_text(CANARY)
    (folder / "certificates").mkdir()
    (folder / "certificates/keycloak.crt").write_text(Path(deployment.ca_file).read_text())
    with Visitor(deployment.ca_file) as browser:
        yield Reader(deployment, node_provider, browser, folder, component("kubectl"))


@pytest.mark.timeout(180)
def test_the_commands_of_the_page_work(reader: Reader) -> None:
    blocks = [each for each in read_blocks(PAGE) if each.run_by]
    assert len(blocks) > 5
    wrong = [found for block in blocks for found in reader.type_block(block)]
    assert wrong == [], "\n\n".join(wrong)
