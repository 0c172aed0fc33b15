"""`fairlead project usage` against a real server process."""

from pathlib import Path

import pytest

from tests.cli.end_to_end import expect_json, expect_success, open_admin_client
from tests.harness.cli import CliFixture
from tests.harness.eventually import wait_until
from tests.harness.fake_server import FakeServer
from tests.harness.server_process import running_server

PASSWORD = "correct horse battery"


def test_the_usage_of_a_project_shows_its_quotas_and_what_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_server(tmp_path / "data") as server:
        cli = CliFixture(tmp_path, FakeServer(server.url, server.ca_file), monkeypatch)
        cli.save_login(key=server.key)
        expect_success(cli.run("user", "create", "meg", "--password-stdin", stdin=f"{PASSWORD}\n"))
        expect_success(cli.run("project", "create", "depot", "--member", "User:meg:admin"))
        with open_admin_client(server) as client:
            client.patch("projects", "depot", {"spec": {"quotas": {"project": {"spaceinstances": "3"}}}})
        flags = ("--user", "meg", "--password-stdin", "--ca-file", server.ca_file, "--name", "meg")
        expect_success(cli.run("login", server.url, *flags, stdin=f"{PASSWORD}\n"))
        manifest = (
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: parts, namespace: service-p-depot}\ndata: {a: b}\n"
        )
        expect_success(cli.run("apply", "-f", "-", stdin=manifest))
        wait_until(lambda: "spaceinstances" in expect_success(cli.run("project", "usage", "depot")))
        rows = [line.split() for line in expect_success(cli.run("project", "usage", "depot")).splitlines()]
        assert rows[0] == ["WHOSE", "WHAT", "USED", "LIMIT"]
        assert ["project", "spaceinstances", "0", "3"] in rows
        assert ["project", "stored", "objects", "1", "10000"] in rows
        assert ["user", "meg", "stored", "objects", "in", "the", "project", "1", "-"] in rows
        assert ["you", "stored", "objects", "in", "all", "1", "2000"] in rows
        shown = expect_json(cli.run("project", "usage", "depot", "-o", "json"))
        assert shown["requester"]["used"]["bytes"] == shown["storage"]["used"]["bytes"] > 100
