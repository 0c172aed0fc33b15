"""Which tests fail on a runner without which barriers, and what they say then."""

from dataclasses import dataclass

from tests.runner.harness.canaries import CANARY, ENVIRONMENT_CANARY

ENGINES = "tests/runner/engines"
AS_BEFORE = ("user ids", "root file system")
"""The tools as root of the machine, on its files: where the known faults of podman lead without a holder."""
ATTACKS = f"{ENGINES}/test_escapes.py::test_an_attack_reaches_nothing_of_the_machine"
PROBES = f"{ENGINES}/test_holder_attacks.py::test_root_of_a_holder_reaches_nothing_of_the_machine"
HOSTILE = f"{ENGINES}/test_hostile_repositories.py"
ROOT_PROGRAM = "ran as root of the machine"


@dataclass(frozen=True, slots=True)
class Row:
    """A test, the barriers without which it fails, and what its message says then."""

    without: tuple[str, ...]
    test: str
    says: str
    phase: str = "call"

    @property
    def name(self) -> str:
        return f"{', '.join(self.without)}: {self.test.rpartition('::')[2]}"


def attack(name: str) -> Row:
    return Row(AS_BEFORE, f"{ATTACKS}[{name}]", f"{CANARY}|written")


ROWS = (
    attack("CVE-2024-1753: a mount of another stage whose source is a link to the root"),
    attack("CVE-2024-1753 with a folder that the machine has"),
    attack("an ignore file that is a link"),
    attack("a lock file that is a link"),
    attack("CVE-2024-9675: a cache that leaves its folder"),
    attack("CVE-2024-11218: a mount that another stage replaces meanwhile"),
    attack("CVE-2026-55686: a working folder below a link to a folder of the machine"),
    attack("any fault that leads out of the container, or out of a build"),
    Row(
        ("contexts in the repository",),
        f"{ENGINES}/inside/test_builds.py::test_a_context_outside_of_the_repository_is_refused[/]",
        "DID NOT RAISE",
    ),
    Row(("user ids",), f"{ATTACKS}[a lock file that is a link]", ROOT_PROGRAM, "teardown"),
    Row(
        ("environment of the tools",),
        f"{ENGINES}/test_hostile_registry.py::test_the_configuration_of_an_image_gives_its_container_no_more",
        ENVIRONMENT_CANARY,
    ),
    Row(
        ("a holder for each clone",),
        f"{ENGINES}/test_devcontainer_failures.py::test_what_one_program_alone_leaves_is_not_there_for_the_next",
        "assert",
    ),
    Row(("network of root",), f"{PROBES}[its network]", "REACHED"),
    Row(
        ("limits of namespaces",),
        f"{PROBES}[networks of its own, which fill tables that the kernel has once]",
        "REACHED",
    ),
    Row(
        ("limits of namespaces",),
        f"{ENGINES}/test_holder_attacks.py::test_user_namespaces_have_a_limit_that_root_of_a_holder_cannot_change",
        "<= 256",
    ),
    Row(("hidden folders of the kernel",), f"{PROBES}[disks of others]", "REACHED"),
    Row(
        ("locks of its own",),
        f"{ENGINES}/test_pulled_images.py::test_a_workspace_that_locks_the_images_of_all_holds_up_no_pull",
        "TimeoutError",
    ),
    Row(
        ("firewall",),
        f"{HOSTILE}::test_neither_a_container_nor_a_build_connects_to[a server of the machine-CONNECTION]",
        "connected",
    ),
    Row(
        ("firewall",),
        f"{HOSTILE}::test_neither_a_container_nor_a_build_connects_to[a server of the machine-DURING-BUILD]",
        "connected",
    ),
    Row(
        ("limits",),
        f"{ENGINES}/test_limits.py::test_a_container_stays_within_its_limits_and_cannot_change_them[runc]",
        "expected 3, got 2",  # none of its 200 processes is refused, so there is no line about that
    ),
    Row(
        ("disk",),
        f"{ENGINES}/test_workspace_disk.py::test_a_disk_full_of_files_concerns_its_workspace_alone",
        "No space left on device",
    ),
    Row(
        ("limits of disks",),
        f"{ENGINES}/test_disk_limits.py::test_a_workspace_reads_and_writes_no_faster_than_its_limit",
        "MiB in",
    ),
)
