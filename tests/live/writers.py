"""Threads that write to a server until it stops."""

import threading
import time

import httpx
from h2.exceptions import H2Error

from tests.harness.server_process import CONFIGMAPS, TIMEOUT_SECONDS, Server, configmap

WRITER_COUNT = 6


class Writers:
    """Threads that create objects and record the acknowledged ones, until the server stops."""

    def __init__(self, server: Server, prefix: str = "w") -> None:
        self.acknowledged: dict[str, str] = {}
        """Names and resource versions."""
        self.error_codes: list[int] = []
        self._server = server
        self._prefix = prefix
        self._threads = [threading.Thread(target=self._write, args=(number,)) for number in range(WRITER_COUNT)]
        for thread in self._threads:
            thread.start()

    def _write(self, writer: int) -> None:
        with self._server.client(http2=bool(writer % 2)) as client:
            for number in range(100_000):
                name = f"{self._prefix}{writer}-{number}"
                try:
                    response = client.post(CONFIGMAPS, json=configmap(name, text="x" * 500))
                except (httpx.HTTPError, H2Error):
                    return
                if response.status_code != 201:
                    self.error_codes.append(response.status_code)
                    return
                self.acknowledged[name] = response.json()["metadata"]["resourceVersion"]

    def wait_for(self, count: int) -> None:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while len(self.acknowledged) < count:
            assert time.monotonic() < deadline, "timed out waiting for writes"
            time.sleep(0.005)

    def join(self) -> None:
        for thread in self._threads:
            thread.join(TIMEOUT_SECONDS)
            assert not thread.is_alive()


def list_configmaps(server: Server) -> dict[str, str]:
    with server.client() as client:
        items = client.get(CONFIGMAPS).json()["items"]
    return {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in items}
