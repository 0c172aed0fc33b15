"""A real runner whose disk has too little free space: its condition, an Event, and an `up` that is refused."""

from pathlib import Path

from tests.harness.eventually import wait_until
from tests.harness.server_process import MANAGEMENT, running_server
from tests.live.runner_process import PROCESS_ENGINE, running_runner
from tests.live.workspace_setup import WORKSPACE, M, create_object

EVENTS = f"{MANAGEMENT}/api/v1/events"


def test_a_runner_without_free_disk_says_so_and_creates_nothing(tmp_path: Path) -> None:
    with (
        running_server(tmp_path / "data") as server,
        server.client() as admin,
        running_runner(server, admin, tmp_path / "runner", PROCESS_ENGINE, flags=("--min-free-disk", "999999999")),
    ):

        def find_conditions() -> dict[str, tuple[str, str]]:
            found = admin.get(f"{M}/runners/local").json()["status"].get("conditions", [])
            return {each["type"]: (each["status"], each["reason"]) for each in found}

        wait_until(lambda: find_conditions().get("DiskAvailable") == ("False", "DiskFull"))
        wait_until(lambda: find_conditions().get("Ready") == ("True", "Reported"), what="it works all the same")
        assert find_conditions()["DiskAvailable"] == ("False", "DiskFull")
        workspaces = WORKSPACE.removesuffix("/dev")
        create_object(admin, workspaces, "DevPodWorkspaceInstance", "dev", runnerRef={"runner": "local"})
        response = wait_until(
            lambda: found if (found := admin.post(f"{WORKSPACE}/up", json={})).status_code != 503 else None
        )
        assert response.status_code == 409 and "MiB of free disk, and needs" in response.json()["message"]
        reasons = wait_until(lambda: [each["reason"] for each in admin.get(EVENTS).json()["items"]])
        assert "DiskFull" in reasons
