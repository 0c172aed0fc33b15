"""A server that stops on SIGTERM: acknowledged writes are kept, streams end properly, within the grace period."""

import json
import signal
import threading
import time
from pathlib import Path
from typing import Any

import httpx

from tests.harness.eventually import wait_until
from tests.harness.server_process import CONFIGMAPS, TIMEOUT_SECONDS, Server, configmap, running_server
from tests.live.http2_client import Http2Client
from tests.live.writers import Writers, list_configmaps


class Watch(threading.Thread):
    """A watch over HTTP/1.1; `failure` is the client's error if it did not end properly."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self.events: list[Any] = []
        self.failure: httpx.HTTPError | None = None
        self._client = server.client()
        self._started = threading.Event()
        self.start()
        assert self._started.wait(TIMEOUT_SECONDS)

    def run(self) -> None:
        try:
            with self._client, self._client.stream("GET", CONFIGMAPS, params={"watch": "1"}) as response:
                self._started.set()
                self.events.extend(json.loads(line) for line in response.iter_lines())
        except httpx.HTTPError as error:
            self.failure = error


def test_a_stopped_server_keeps_acknowledged_writes_and_ends_its_watches(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as server:
        watches = [Watch(server) for _ in range(3)]
        http2_client = Http2Client(server)
        streams = [http2_client.request("GET", f"{CONFIGMAPS}?watch=1") for _ in range(3)]
        assert http2_client.read(lambda: http2_client.statuses.keys() >= set(streams))
        writers = Writers(server)
        writers.wait_for(100)
        server.process.send_signal(signal.SIGTERM)
        http2_client.read(lambda: False)
        assert server.process.wait(TIMEOUT_SECONDS) == 0
        writers.join()
        for watch in watches:
            watch.join(TIMEOUT_SECONDS)
        errors = server.log.read_text()
        http2_client.close()
    assert [watch.failure for watch in watches] == [None, None, None]
    assert (http2_client.ended & set(streams), http2_client.reset) == (set(streams), set())
    assert "Traceback" not in errors
    http2_events = [json.loads(line) for line in http2_client.lines(streams[0])]
    for events in (watches[0].events, http2_events):
        assert len(events) >= 100
        assert {event["type"] for event in events} == {"ADDED"}
    with running_server(tmp_path / "data") as server:
        configmaps = list_configmaps(server)
    assert writers.acknowledged.items() <= configmaps.items()
    for events in (watches[0].events, http2_events):
        last = int(events[-1]["object"]["metadata"]["resourceVersion"])
        names = [event["object"]["metadata"]["name"] for event in events]
        assert sorted(names) == sorted(name for name, version in configmaps.items() if int(version) <= last), (
            "events are missing"
        )


def count_writes(server: Server) -> float:
    """How many writes are in flight."""
    with server.client() as client:
        metrics = client.get("/metrics", params={"name[]": "apiserver_current_inflight_requests"}).text
    line = next(line for line in metrics.splitlines() if 'request_kind="mutating"' in line)
    return float(line.split()[1])


def test_a_request_in_progress_is_completed(tmp_path: Path) -> None:
    body = json.dumps(configmap("under-way")).encode()
    with running_server(tmp_path / "data") as server:
        with server.connect() as connection:
            lines = (f"POST {CONFIGMAPS} HTTP/1.1", "Host: server", f"Authorization: Bearer {server.key}")
            request = "\r\n".join((*lines, f"Content-Length: {len(body)}", "", ""))
            connection.sendall(request.encode() + body[:10])
            wait_until(lambda: count_writes(server) == 1, what="the server has begun to read the request")
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
            connection.sendall(body[10:])
            response = connection.recv(65_536)
        assert response.startswith(b"HTTP/1.1 201 ")
        assert server.process.wait(TIMEOUT_SECONDS) == 0


def test_idle_connections_do_not_delay_the_shutdown(tmp_path: Path) -> None:
    with running_server(tmp_path / "data", shutdown_grace=3600) as server, server.client() as client, server.connect():
        client.get("/version")
        assert server.stop() == 0


def test_no_client_can_delay_the_shutdown_beyond_the_grace_period(tmp_path: Path) -> None:
    with (
        running_server(tmp_path / "data", shutdown_grace=1) as server,
        server.client() as client,
        server.connect() as unread_connection,
        server.connect() as incomplete_request,
    ):
        headers = f"HTTP/1.1\r\nHost: server\r\nAuthorization: Bearer {server.key}\r\n"
        unread_connection.sendall(f"GET {CONFIGMAPS}?watch=1 {headers}\r\n".encode())
        for number in range(15):
            client.post(CONFIGMAPS, json=configmap(f"n{number}", text="x" * 500_000))
        incomplete_request.sendall(f"POST {CONFIGMAPS} {headers}Content-Length: 500\r\n\r\n{{".encode())
        idle_http2_client = Http2Client(server)
        stream = idle_http2_client.request("GET", "/version")
        assert idle_http2_client.read(lambda: stream in idle_http2_client.ended)
        assert server.stop() == 0
        assert "Traceback" not in server.log.read_text()
        idle_http2_client.close()


def test_repeated_signals_do_not_disturb_the_shutdown(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as server:
        while server.process.poll() is None:
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.005)
        assert server.process.returncode == 0
        assert "Traceback" not in server.log.read_text()


def test_a_server_that_will_stop_is_not_ready_and_serves_on(tmp_path: Path) -> None:
    with running_server(tmp_path / "data", shutdown_drain=3600) as server, server.client() as client:
        assert client.get("/readyz").status_code == 200
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: client.get("/readyz").status_code == 503, what="/readyz responds with 503")
        assert client.get("/readyz/shutdown").text == "the server is shutting down\n"
        assert client.get("/livez").status_code == 200
        assert client.post(CONFIGMAPS, json=configmap("late")).status_code == 201
        with server.client() as another:  # a new connection
            assert another.get(f"{CONFIGMAPS}/late").status_code == 200


def test_a_server_stops_when_it_has_drained(tmp_path: Path) -> None:
    with running_server(tmp_path / "data", shutdown_drain=1) as server:
        assert server.stop() == 0
        assert "does not stop in time" not in server.log.read_text()
