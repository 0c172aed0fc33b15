"""Compose files: how they are read, merged and rendered, and what is left out or refused."""

import asyncio
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fairlead.runner.engines.contract import EngineError, Reason
from fairlead.runner.engines.devcontainer.compose import loading
from fairlead.runner.engines.devcontainer.compose.interpolation import Variables, parse_variables
from fairlead.runner.engines.devcontainer.compose.loading import MAX_FILES, Reader, list_paths, load_compose
from fairlead.runner.engines.devcontainer.compose.rendering import Composed, list_images, render_compose
from fairlead.runner.engines.devcontainer.programs import Result
from tests.runner.harness.grants import make_grant

WORK = "/workspaces/demo"
FOLDER = f"{WORK}/.devcontainer"
PERMISSIONS = ("privileged", "capAdd", "securityOpt", "runArgs", "gpu", "buildOptions", "features")


@dataclass(frozen=True, slots=True)
class LocalHolder:
    """Runs the programs that read the repository in a folder of the test, which has the place of the work folder."""

    work: Path

    async def run(self, *command: str, max_output_bytes: int) -> Result:
        placed = [str(self.work) + each.removeprefix(WORK) if each.startswith(WORK) else each for each in command]
        process = await asyncio.create_subprocess_exec(*placed, stdout=-1, stderr=-3)
        output, _ = await process.communicate()
        return Result(process.returncode or 0, output[:max_output_bytes].decode(), "")


def write(work: Path, files: Mapping[str, str]) -> None:
    for path, text in files.items():
        (work / path).parent.mkdir(parents=True, exist_ok=True)
        (work / path).write_text(text)


def render(
    work: Path,
    files: Mapping[str, str] | str,
    configuration: Mapping[str, Any] | None = None,
    permissions: tuple[str, ...] = (),
) -> Composed:
    write(work, {".devcontainer/compose.yaml": files} if isinstance(files, str) else files)
    named = (configuration or {}).get("dockerComposeFile", "compose.yaml")
    paths = list_paths(named, FOLDER)
    reader = Reader(LocalHolder(work), WORK)  # type: ignore[arg-type]
    compose = asyncio.run(load_compose(reader, paths))
    return render_compose({"service": "app", **(configuration or {})}, compose, FOLDER, make_grant(*permissions))


def find(composed: Composed, name: str) -> Mapping[str, Any]:
    return next(each for each in composed.plan["services"] if each["name"] == name)


def refuse(work: Path, files: Mapping[str, str] | str, configuration: Mapping[str, Any] | None = None) -> EngineError:
    with pytest.raises(EngineError) as raised:
        render(work, files, configuration)
    return raised.value


RAILS = """
x-common: &common
  restart: unless-stopped
services:
  app:
    build:
      context: ..
      dockerfile: .devcontainer/Dockerfile
      args: {VARIANT: "${VARIANT:-3.3}"}
    volumes:
      - ../..:/workspaces:cached
      - gems:/usr/local/bundle
      - /usr/src/cache
    command: sleep infinity
    environment:
      - DATABASE_URL=postgres://postgres:${PASSWORD}@db/app
      - FROM_THE_MACHINE
    depends_on:
      db: {condition: service_healthy}
    ports: ["3000:3000", "127.0.0.1:8080:80"]
  db:
    <<: *common
    image: postgres:${POSTGRES:-16}
    env_file: db.env
    volumes: ["data:/var/lib/postgresql/data", "./init.sql:/docker-entrypoint-initdb.d/init.sql:ro"]
    healthcheck:
      test: ["CMD-SHELL", "pg_isready"]
      interval: 5s
      retries: 20
    networks: {default: {aliases: [database]}}
  admin:
    image: adminer
    profiles: [tools]
volumes: {gems: , data: }
"""


def test_a_service_becomes_the_container_and_the_others_are_started_beside_it(tmp_path: Path) -> None:
    files = {
        ".devcontainer/compose.yaml": RAILS,
        ".devcontainer/.env": "export PASSWORD='pa$ss'\nPOSTGRES=17 # the newest\n",
        ".devcontainer/db.env": "POSTGRES_PASSWORD=pw\n# a comment\nnothing\n",
    }
    configuration = {"workspaceFolder": "/workspaces/${localWorkspaceFolderBasename}", "features": {"x": {}}}
    composed = render(tmp_path, files, configuration)
    assert composed.configuration == {
        "build": {"context": "..", "dockerfile": "Dockerfile", "args": {"VARIANT": "3.3"}},
        "workspaceMount": "type=bind,source=${localWorkspaceFolder},target=/workspaces/demo",
        "workspaceFolder": "/workspaces/${localWorkspaceFolderBasename}",
        "mounts": [
            "type=volume,source=gems,target=/usr/local/bundle",
            "type=volume,source=app-usr-src-cache,target=/usr/src/cache",
        ],
        "containerEnv": {"DATABASE_URL": "postgres://postgres:pa$ss@db/app"},
        "features": {"x": {}},
        "forwardPorts": [3000, 80],
        **{"capAdd": [], "securityOpt": [], "runArgs": []},
    }
    assert composed.plan["hosts"] == ["db", "database", "app"]
    main = composed.plan["main"]
    assert (main["entrypoint"], main["command"]) == (None, ["sleep", "infinity"])
    assert main["waits"] == [
        {
            **{"service": "db", "condition": "service_healthy", "is_off": False, "seconds": 100.0},
            "command": ["/bin/sh", "-c", "pg_isready"],
        }
    ]
    assert [each["name"] for each in composed.plan["services"]] == ["db"]
    assert list_images(composed.plan) == ["postgres:17"]
    assert find(composed, "db")["options"] == [
        *("-e", "POSTGRES_PASSWORD=pw", "--mount", "type=volume,source=data,target=/var/lib/postgresql/data"),
        "--mount",
        f"type=bind,source={FOLDER}/init.sql,target=/docker-entrypoint-initdb.d/init.sql,readonly",
    ]
    assert find(composed, "db")["restart"] == "unless-stopped"
    assert composed.warnings == ("service app: port 8080 of the machine is not opened; use 80",)


def test_later_files_and_extended_services_are_merged(tmp_path: Path) -> None:
    files = {
        "docker-compose.yml": """
services:
  app: {extends: {file: shared/base.yml, service: base}, command: [rails, server], cap_add: [SYS_PTRACE]}
  cache: {image: redis}
""",
        "shared/base.yml": """
services:
  base: {image: "ruby:3", environment: {A: 1, B: two}, volumes: [".:/shared"], env_file: [base.env]}
""",
        "shared/base.env": "C=three\nB=of the file\n",
        ".devcontainer/compose.yaml": """
services:
  app: {command: sleep infinity, environment: {A: other}, volumes: ["..:/workspace"], cap_add: [SYS_PTRACE, SYS_ADMIN]}
""",
    }
    configuration = {"dockerComposeFile": ["../docker-compose.yml", "compose.yaml"]}
    composed = render(tmp_path, files, configuration)
    assert composed.configuration["containerEnv"] == {"A": "other", "B": "two", "C": "three"}
    assert composed.configuration["capAdd"] == ["SYS_PTRACE", "SYS_ADMIN"]
    assert composed.configuration["mounts"] == [f"type=bind,source={WORK}/shared,target=/shared"]
    assert composed.configuration["workspaceMount"] == "type=bind,source=${localWorkspaceFolder},target=/workspace/demo"
    assert composed.plan["main"]["command"] == ["sleep", "infinity"]
    assert [each["name"] for each in composed.plan["services"]] == ["cache"]


def test_only_the_named_services_run_with_those_that_they_need(tmp_path: Path) -> None:
    text = """
services:
  app: {image: a}
  web: {image: b, depends_on: [queue, app]}
  queue: {image: c, network_mode: "service:db"}
  db: {image: d}
  other: {image: e}
"""
    composed = render(tmp_path, text, {"runServices": ["web"]})
    assert [each["name"] for each in composed.plan["services"]] == ["db", "queue", "web"]
    composed = render(tmp_path, text)
    assert {each["name"] for each in composed.plan["services"]} == {"db", "queue", "web", "other"}


@pytest.mark.parametrize(
    ("service", "configuration", "wanted", "command"),
    [
        ("{image: x}", {}, False, None),
        ("{image: x, tty: true}", {}, True, None),
        ("{image: x, command: a b}", {}, None, ["a", "b"]),
        ("{image: x, command: a b}", {"overrideCommand": True}, True, None),
        ("{image: x, command: a b}", {"overrideCommand": False}, None, ["a", "b"]),
        ("{image: x}", {"overrideCommand": True}, True, None),
        ("{image: x, tty: true}", {"overrideCommand": False}, False, None),
    ],
)
def test_the_command_of_the_container_is_that_of_the_service_unless_it_is_overridden(
    tmp_path: Path, service: str, configuration: dict[str, Any], wanted: bool | None, command: list[str] | None
) -> None:
    composed = render(tmp_path, f"services: {{app: {service}}}", configuration)
    assert composed.configuration.get("overrideCommand") == wanted
    assert composed.plan["main"]["command"] == command


HOSTILE: Mapping[str, tuple[str, str]] = {
    "root of the machine": ("volumes: ['/:/host']", "target=/host is left out"),
    "home of the machine": ("volumes: ['~/.ssh:/root/.ssh']", "target=/root/.ssh is left out"),
    "socket of podman": ("volumes: ['/var/run/docker.sock:/var/run/docker.sock']", "docker.sock is left out"),
    "out of the repository": ("volumes: ['../../../etc:/e']", "target=/e is left out"),
    "out of the repository, long form": (
        "volumes: [{type: bind, source: ../../../etc, target: /e}]",
        "target=/e is left out",
    ),
    "the private folder": ("volumes: ['x:/run/fairlead']", "its target is reserved"),
    "a mount in a mount": ("volumes: ['x,type=bind,source=/:/y']", "is left out"),
    "another sort of mount": ("volumes: [{type: npipe, source: x, target: /y}]", "is left out"),
    "memory over the kernel's": ("tmpfs: /proc", "its target is reserved"),
    "privileged": ("privileged: true", "privileged is left out"),
    "privileged by a text": ("privileged: 'TRUE'", "privileged is left out"),
    "capability": ("cap_add: [SYS_ADMIN]", "capAdd SYS_ADMIN is left out"),
    "no seccomp": ("security_opt: ['seccomp:unconfined']", "securityOpt seccomp:unconfined is left out"),
    "processes of the machine": ("pid: host", "pid host is left out"),
    "shared memory of the machine": ("ipc: host", "ipc host is left out"),
    "users of the machine": ("userns_mode: host", "userns_mode host is left out"),
    "network of the machine": ("network_mode: host", "network_mode host is left out"),
    "devices": ("devices: ['/dev/sda:/dev/sda']", "devices ['/dev/sda:/dev/sda'] is left out"),
    "more memory": ("deploy: {resources: {limits: {memory: 1T}}}", "deploy is left out"),
    "limits of processes": ("ulimits: {nproc: 65535}", "--ulimit=nproc=65535 is left out"),
    "secrets of the machine": ("secrets: [x]", "secrets is left out"),
    "a property of the future": ("escape: true", "escape is left out: this runner does not know it"),
    "cgroups of the machine": ("cgroup_parent: /", "cgroup_parent is left out"),
    "kernel settings": ("sysctls: {kernel.core_pattern: '|/x'}", "sysctls is left out"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_what_a_service_may_not_have_is_left_out_as_for_the_container(tmp_path: Path, case: str) -> None:
    properties, says = HOSTILE[case]
    composed = render(tmp_path, f"services:\n  app: {{image: x}}\n  evil:\n    image: x\n    {properties}\n")
    assert find(composed, "evil")["options"] == []
    assert len(composed.warnings) == 1
    assert composed.warnings[0].startswith("service evil: ") and says in composed.warnings[0]


def test_a_template_allows_services_what_it_allows_the_container(tmp_path: Path) -> None:
    privileges = "privileged: true, cap_add: [SYS_ADMIN], ulimits: {nofile: {soft: 1, hard: 2}}"
    composed = render(
        tmp_path, f"services: {{app: {{image: x}}, a: {{image: x, {privileges}}}}}", permissions=PERMISSIONS
    )
    assert find(composed, "a")["options"] == ["--cap-add", "SYS_ADMIN", "--privileged", "--ulimit=nofile=1:2"]
    assert composed.warnings == ()


REFUSED: Mapping[str, tuple[str, str]] = {
    "no such service": ("services: {web: {image: x}}", "no service 'app'"),
    "neither image nor build": ("services: {app: {command: x}}", "neither an image nor a build"),
    "an option as an image": ("services: {app: {image: x}, b: {image: '--privileged'}}", "neither an image"),
    "a build of a URL": ("services: {app: {image: x}, b: {build: 'https://example.com/x.git'}}", "no folder"),
    "a build without a file": ("services: {app: {build: {context: ., dockerfile_inline: x}}}", "dockerfile_inline"),
    "a circle": (
        "services: {app: {image: x}, a: {image: x, depends_on: [b]}, b: {image: x, links: [a]}}",
        "each other",
    ),
    "a service that is not there": ("services: {app: {image: x, depends_on: [b]}}", "no service 'b'"),
    "a service that extends itself": ("services: {app: {image: x, extends: app}}", "extends more than"),
    "a variable that is needed": ("services: {app: {image: 'x:${TAG:?the version}'}}", "TAG: the version"),
    "a variable without an end": ("services: {app: {image: 'x:${TAG:-'}}", "has no end"),
    "a name that is none": ("services: {app: {image: x}, '--a': {image: x}}", "no name for a service"),
    "other files": ("include: [x.yaml]\nservices: {app: {image: x}}", "include"),
    "no file": ("[]", "is no Compose file"),
    "invalid YAML": ("services: {", "cannot be read"),
    "a type": ("services: {app: !!python/object:os.system {}}", "cannot be read"),
    "no services": ("services: {}", "must have from 1 to"),
    "too many services": (
        "services: {" + ", ".join(f"s{n}: {{image: x}}" for n in range(40)) + "}",
        "must have from 1",
    ),
    "a file of variables that is missing": ("services: {app: {image: x, env_file: y.env}}", "the repository has no"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_compose_files_that_make_no_workspace_are_refused_with_a_reason(tmp_path: Path, case: str) -> None:
    text, says = REFUSED[case]
    error = refuse(tmp_path, text)
    assert error.reason == Reason.CONFIGURATION_INVALID and says in error.message


@pytest.mark.parametrize(
    "image",
    [
        *("docker-archive:/workspaces/demo/x.tar", "oci-archive:x.tar", "oci:folder", "dir:/private", "DIR:x"),
        *("containers-storage:x", "docker-daemon:x:1", "sif:x", "tarball:x.tar", "docker://debian", "x:y:z", "a b"),
        *("/workspaces/demo/x.tar", "./x.tar", "ostree:x@y", "x" * 300),
    ],
)
def test_the_image_of_a_service_is_a_name_and_no_archive(tmp_path: Path, image: str) -> None:
    """An archive names its images itself, such as those that other workspaces share."""
    for services in (f"app: {{image: '{image}'}}", f"app: {{image: x}}, other: {{image: '{image}'}}"):
        error = refuse(tmp_path, f"services: {{{services}}}")
        assert error.reason == Reason.POLICY_VIOLATION and "is no name of an image" in error.message


@pytest.mark.parametrize("named", ["../../secret.env", "link.env", "/etc/passwd", "folder-link/passwd"])
def test_files_outside_of_the_repository_are_not_read(tmp_path: Path, named: str) -> None:
    work = tmp_path / "work"
    write(tmp_path, {"secret.env": "CANARY=of the machine\n", "work/.devcontainer/x": ""})
    (work / ".devcontainer/link.env").symlink_to(tmp_path / "secret.env")
    (work / ".devcontainer/folder-link").symlink_to("/etc")
    error = refuse(work, f"services: {{app: {{image: x, env_file: {named}}}}}")
    assert error.reason == Reason.POLICY_VIOLATION and "only files of the repository" in error.message
    (work / ".devcontainer/compose.yaml").unlink()
    (work / ".devcontainer/compose.yaml").symlink_to(tmp_path / "secret.env")
    reader = Reader(LocalHolder(work), WORK)  # type: ignore[arg-type]
    with pytest.raises(EngineError, match="only files of the repository"):
        asyncio.run(load_compose(reader, [f"{FOLDER}/compose.yaml"]))


def test_files_that_explode_are_refused_before_they_do(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert "too many nodes" in refuse(tmp_path, "\n".join(lines)).message
    long = {".devcontainer/.env": f"A={'x' * 200_000}\n"}
    text = f"services: {{app: {{image: x, command: [{', '.join(['$A'] * 20)}]}}}}"
    assert "of text" in refuse(tmp_path, {**long, ".devcontainer/compose.yaml": text}).message
    joined = f"services: {{app: {{image: '{'$A' * 20}'}}}}"
    assert "longer than" in refuse(tmp_path, {**long, ".devcontainer/compose.yaml": joined}).message
    nested = "${A:-" * 20 + "}" * 20
    assert (
        "nested deeper"
        in refuse(
            tmp_path,
            {".devcontainer/.env": "", ".devcontainer/compose.yaml": f"services: {{app: {{image: '{nested}'}}}}"},
        ).message
    )
    assert "at most 256 KiB" in refuse(tmp_path, "#" * 300_000).message
    many = ", ".join(f"{n}.env" for n in range(MAX_FILES + 1))
    files = {f".devcontainer/{n}.env": "" for n in range(MAX_FILES + 1)}
    error = refuse(
        tmp_path, {**files, ".devcontainer/compose.yaml": f"services: {{app: {{image: x, env_file: [{many}]}}}}"}
    )
    assert f"more than {MAX_FILES} files" in error.message


REPEATED: Mapping[str, tuple[str, dict[str, Any], str]] = {
    "the same Compose file": (
        "services: {app: {image: x}}",
        {"dockerComposeFile": ["compose.yaml"] * (MAX_FILES + 1)},
        f"from 1 to {MAX_FILES} files",
    ),
    "the same file of variables": (
        f"services: {{app: {{image: x, env_file: [{', '.join(['.env'] * (MAX_FILES + 1))}]}}}}",
        {},
        f"more than {MAX_FILES} files in env_file",
    ),
    "variables of many services": (
        "services: {app: {image: x}, " + ", ".join(f"s{n}: {{image: x, env_file: .env}}" for n in range(20)) + "}",
        {},
        "variables of all services have more than 1 MiB",
    ),
    "lists that are extended": (
        f"services: {{app: {{extends: a}}, a: {{extends: b, tmpfs: [{', '.join(['/x'] * 600)}]}}, "
        f"b: {{image: x, tmpfs: [{', '.join(['/x'] * 600)}]}}}}",
        {},
        "tmpfs of the Compose files has more than 1000 entries",
    ),
    "properties": (
        f"services: {{app: {{image: x, {', '.join(f'x{n}: y' for n in range(200))}}}}}",
        {},
        "more than 100 properties",
    ),
    "words": (f"services: {{app: {{image: x, command: {'a' * 70_000}}}}}", {}, "more than 65536 characters"),
}


@pytest.mark.parametrize("case", REPEATED)
def test_files_that_repeat_what_is_large_are_refused(tmp_path: Path, case: str) -> None:
    text, configuration, says = REPEATED[case]
    files = {".devcontainer/.env": f"A={'x' * 100_000}\n", ".devcontainer/compose.yaml": text}
    assert says in refuse(tmp_path, files, configuration).message


def test_files_are_parsed_and_merged_in_a_thread_each_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop is that of all workspaces of a runner."""
    places: list[tuple[str, bool]] = []

    def watch(name: str) -> None:
        function = getattr(loading, name)

        def record(*arguments: Any) -> Any:
            places.append((name, threading.current_thread() is threading.main_thread()))
            return function(*arguments)

        monkeypatch.setattr(loading, name, record)

    for name in ("decode", "parse_variables", "normalize_service", "merge_services"):
        watch(name)
    services = ", ".join(f"s{n}: {{extends: {{file: base.yaml, service: base}}, env_file: a.env}}" for n in range(9))
    files = {
        ".devcontainer/compose.yaml": f"services: {{app: {{image: x}}, {services}}}",
        ".devcontainer/base.yaml": "services: {base: {image: x}}",
        ".devcontainer/a.env": "A=1\n",
    }
    render(tmp_path, files)
    counts = {name: sum(each == name for each, _ in places) for name, _ in places}
    assert not any(is_on_event_loop for _, is_on_event_loop in places)
    # A file that turns out to be needed costs another attempt for what needs it.
    assert (counts["decode"], counts["parse_variables"], counts["normalize_service"]) == (2, 2, 12)


def test_a_long_run_of_spaces_in_a_file_of_variables_is_read_in_linear_time() -> None:
    assert parse_variables(f"A=b{' ' * 250_000}c # d\n")["A"].endswith(" c")


def test_properties_that_are_empty_or_no_lists_have_no_meaning(tmp_path: Path) -> None:
    text = """
services:
  app: {build: {context: ., args: }, networks: {default: {aliases: 3}}}
  db: {build: {context: ., args: []}, ports: ["000001%s", "0080000"]}
"""
    composed = render(tmp_path, text % ("0" * 5000))
    assert "args" not in composed.configuration["build"] and find(composed, "db")["build"]["args"] == {}
    assert composed.configuration["forwardPorts"] == []


def test_half_a_million_files_are_refused_without_a_look_at_each(tmp_path: Path) -> None:
    named = ["compose.yaml"] * 500_000
    assert len(list_paths(named, FOLDER)) == MAX_FILES + 1
    error = refuse(tmp_path, "services: {app: {image: x}}", {"dockerComposeFile": named})
    assert f"from 1 to {MAX_FILES} files" in error.message


@pytest.mark.parametrize(
    ("text", "replaced"),
    [
        ("$A-${A}", "1-1"),
        ("$$A ${B} $", "$A  $"),
        ("${B:-x}${EMPTY:-y}${EMPTY-z}", "xy"),
        ("${A:+yes}${B:+no}${EMPTY+set}", "yesset"),
        ("${B:-${C:-deep}}/x", "deep/x"),
        ("${B-a:b}", "a:b"),
    ],
)
def test_variables_have_all_forms_of_compose(text: str, replaced: str) -> None:
    variables = Variables({"A": "1", "EMPTY": ""})
    assert variables.replace_in({"k": [text]}) == {"k": [replaced]}


def test_variables_of_files_are_read_as_compose_does() -> None:
    text = "A=1\nexport B = two words # comment\nC=\"x # y\"\nD='$x'\nE=\n#F=1\nG\nH=a#b\n"
    assert parse_variables(text) == {"A": "1", "B": "two words", "C": "x # y", "D": "$x", "E": "", "H": "a#b"}


def test_the_plan_of_a_service_changes_with_everything_that_it_is_made_of(tmp_path: Path) -> None:
    digests = {
        find(render(tmp_path, f"services: {{app: {{image: x}}, db: {service}}}"), "db")["digest"]
        for service in ("{image: x}", "{image: z}", "{image: x, command: a}", "{image: x, environment: {A: b}}")
    }
    assert len(digests) == 4
    json.dumps(render(tmp_path, RAILS.replace("env_file: db.env", "")).plan)
