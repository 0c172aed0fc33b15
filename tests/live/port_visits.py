"""What a browser does with the host name of a port: without one, for tests that look at single requests."""

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx

from fairlead.subresources.ports.hosts import mark_of
from tests.harness.server_process import Server
from tests.live.workspace_setup import M

DOMAIN = "workspaces.localhost"
NAVIGATION = {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
OWN_PAGE = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}


@dataclass(slots=True)
class PortVisit:
    """A browser at the host name of one port. `cookies` are those that it has for this host.

    Without a given `mark`, it is that of the workspace with this name, if there is one."""

    server: Server
    port: int
    workspace: str = "dev"
    project: str = "web"
    cookies: dict[str, str] = field(default_factory=dict)
    mark: str | None = None

    def __post_init__(self) -> None:
        if self.mark is None:
            with self.server.client() as admin:
                found = admin.get(self.path)
            self.mark = mark_of(found.json()["metadata"]["uid"]) if found.status_code == 200 else mark_of("nothing")

    @property
    def path(self) -> str:
        return f"{M}/namespaces/service-p-{self.project}/devpodworkspaceinstances/{self.workspace}"

    @property
    def host(self) -> str:
        mark = f"--{self.mark}" if self.mark else ""
        return f"{self.port}--{self.workspace}--{self.project}{mark}.{DOMAIN}:{urlsplit(self.server.url).port}"

    @property
    def origin(self) -> str:
        return f"https://{self.host}"

    def send(
        self, path: str, method: str = "GET", page: dict[str, str] | None = None, **options: Any
    ) -> httpx.Response:
        cookies = (
            {"Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())} if self.cookies else {}
        )
        headers = {"Host": self.host, **(OWN_PAGE if page is None else page), **cookies, **options.pop("headers", {})}
        with self.server.client(None) as client:
            response = client.request(method, path, headers=headers, **options)
        for header in response.headers.get_list("set-cookie"):
            name, _, value = header.partition(";")[0].partition("=")
            self.cookies[name] = value
            if "Max-Age=0" in header:
                del self.cookies[name]
        return response

    def ask_for_challenge(self, path: str = "/") -> str:
        response = self.send(path, page=NAVIGATION)
        assert response.status_code == 303, response.text
        return parse_qs(urlsplit(response.headers["location"]).query)["challenge"][0]

    def request_ticket(self, key: str, challenge: str, path: str = "/") -> httpx.Response:
        """What the console does."""
        spec = {"port": self.port, "path": path, "challenge": challenge}
        with self.server.client(key) as client:
            return client.post(f"{self.path}/portaccess", json={"spec": spec})

    def open(self, key: str, path: str = "/") -> httpx.Response:
        """The whole way to the port cookie."""
        ticket = self.request_ticket(key, self.ask_for_challenge(path), path)
        assert ticket.status_code == 201, ticket.text
        url = urlsplit(ticket.json()["status"]["url"])
        assert url.netloc == self.host
        return self.send(f"{url.path}?{url.query}", page=NAVIGATION)
