"""A server that is told to stop: what it acknowledged is kept, what it streams ends properly, and it goes in time."""

import json
import signal
import threading
import time
from pathlib import Path
from typing import Any

import httpx
from h2.exceptions import H2Error

from tests.harness.server_process import CONFIGMAPS, TIMEOUT_SECONDS, Server, configmap, running
from tests.live.http2_client import Http2

WRITERS = 6


class Writers:
    """Threads that create objects one after the other and remember which were acknowledged, until the server goes."""

    def __init__(self, server: Server, prefix: str = "w") -> None:
        self.acknowledged: dict[str, str] = {}
        """Names and their versions."""
        self.refused: list[int] = []
        self._server = server
        self._prefix = prefix
        self._threads = [threading.Thread(target=self._write, args=(number,)) for number in range(WRITERS)]
        for thread in self._threads:
            thread.start()

    def _write(self, writer: int) -> None:
        with self._server.client(http2=bool(writer % 2)) as client:
            for number in range(100_000):
                name = f"{self._prefix}{writer}-{number}"
                try:
                    answer = client.post(CONFIGMAPS, json=configmap(name, text="x" * 500))
                except (httpx.HTTPError, H2Error):
                    return
                if answer.status_code != 201:
                    self.refused.append(answer.status_code)
                    return
                self.acknowledged[name] = answer.json()["metadata"]["resourceVersion"]

    def wait_for(self, count: int) -> None:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while len(self.acknowledged) < count:
            assert time.monotonic() < deadline, "the writers do not get on"
            time.sleep(0.005)

    def join(self) -> None:
        for thread in self._threads:
            thread.join(TIMEOUT_SECONDS)
            assert not thread.is_alive()


class Watch(threading.Thread):
    """A watch over HTTP/1.1; `failure` is what the client has to say about how it ended."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self.events: list[Any] = []
        self.failure: httpx.HTTPError | None = None
        self._client = server.client()
        self._begun = threading.Event()
        self.start()
        assert self._begun.wait(TIMEOUT_SECONDS)

    def run(self) -> None:
        try:
            with self._client, self._client.stream("GET", CONFIGMAPS, params={"watch": "1"}) as answer:
                self._begun.set()
                self.events.extend(json.loads(line) for line in answer.iter_lines())
        except httpx.HTTPError as error:
            self.failure = error


def listed(server: Server) -> dict[str, str]:
    with server.client() as client:
        items = client.get(CONFIGMAPS).json()["items"]
    return {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in items}


def test_a_server_told_to_stop_keeps_what_it_acknowledged_and_ends_its_watches(tmp_path: Path) -> None:
    with running(tmp_path / "data") as server:
        watches = [Watch(server) for _ in range(3)]
        multiplexed = Http2(server)
        streams = [multiplexed.request("GET", f"{CONFIGMAPS}?watch=1") for _ in range(3)]
        assert multiplexed.read(lambda: multiplexed.statuses.keys() >= set(streams))
        writers = Writers(server)
        writers.wait_for(100)
        server.process.send_signal(signal.SIGTERM)
        multiplexed.read(lambda: False)
        assert server.process.wait(TIMEOUT_SECONDS) == 0
        writers.join()
        for watch in watches:
            watch.join(TIMEOUT_SECONDS)
        errors = server.log.read_text()
    assert [watch.failure for watch in watches] == [None, None, None]
    assert (multiplexed.ended & set(streams), multiplexed.reset) == (set(streams), set())
    assert "Traceback" not in errors
    heard = [json.loads(line) for line in multiplexed.lines(streams[0])]
    for events in (watches[0].events, heard):
        assert len(events) >= 100
        assert {event["type"] for event in events} == {"ADDED"}
    with running(tmp_path / "data") as server:
        kept = listed(server)
    assert writers.acknowledged.items() <= kept.items()
    for events in (watches[0].events, heard):
        last = int(events[-1]["object"]["metadata"]["resourceVersion"])
        names = [event["object"]["metadata"]["name"] for event in events]
        assert sorted(names) == sorted(name for name, version in kept.items() if int(version) <= last), "no gap"


def test_a_request_under_way_is_finished(tmp_path: Path) -> None:
    body = json.dumps(configmap("under-way")).encode()
    with running(tmp_path / "data") as server:
        with server.connect() as connection:
            lines = (f"POST {CONFIGMAPS} HTTP/1.1", "Host: server", f"Authorization: Bearer {server.key}")
            request = "\r\n".join((*lines, f"Content-Length: {len(body)}", "", ""))
            connection.sendall(request.encode() + body[:10])
            time.sleep(0.3)
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
            connection.sendall(body[10:])
            answer = connection.recv(65_536)
        assert answer.startswith(b"HTTP/1.1 201 ")
        assert server.process.wait(TIMEOUT_SECONDS) == 0


def test_idle_connections_do_not_hold_it_up(tmp_path: Path) -> None:
    with running(tmp_path / "data", shutdown_grace=3600) as server, server.client() as client, server.connect():
        client.get("/version")
        assert server.stop() == 0


def test_nobody_can_hold_it_up_for_longer_than_the_grace(tmp_path: Path) -> None:
    with (
        running(tmp_path / "data", shutdown_grace=1) as server,
        server.client() as client,
        server.connect() as reading_nothing,
        server.connect() as sending_nothing_more,
    ):
        signed = f"HTTP/1.1\r\nHost: server\r\nAuthorization: Bearer {server.key}\r\n"
        reading_nothing.sendall(f"GET {CONFIGMAPS}?watch=1 {signed}\r\n".encode())
        for number in range(15):
            client.post(CONFIGMAPS, json=configmap(f"n{number}", text="x" * 500_000))
        sending_nothing_more.sendall(f"POST {CONFIGMAPS} {signed}Content-Length: 500\r\n\r\n{{".encode())
        answering_nothing = Http2(server)
        stream = answering_nothing.request("GET", "/version")
        assert answering_nothing.read(lambda: stream in answering_nothing.ended)
        assert server.stop() == 0
        assert "Traceback" not in server.log.read_text()
        answering_nothing.close()


def test_signals_beyond_the_first_are_not_needed_and_do_no_harm(tmp_path: Path) -> None:
    with running(tmp_path / "data") as server:
        while server.process.poll() is None:
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.005)
        assert server.process.returncode == 0
        assert "Traceback" not in server.log.read_text()
