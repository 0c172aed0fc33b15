"""Configurations of the kind that public repositories have: languages, frameworks, infrastructure and Compose.

They have the properties and features of those, with small images of the tests in place of theirs. `IMAGE` stands for an
image, `FEATURES` for the namespace of the dev container project.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

IMAGE, FEATURES = "@image@", "@features@"
RUNS, WARNS, REFUSED = "runs", "runs with warnings", "refused"


@dataclass(frozen=True, slots=True)
class PublicConfiguration:
    outcome: str
    says: str = ""
    """A part of a warning, or of the refusal."""
    properties: Mapping[str, Any] = field(default_factory=dict)
    dockerfile: str = ""
    compose: str = ""
    """A Compose file beside the configuration, with the name that it has there."""
    services: tuple[str, ...] = ()
    """Those that run beside the workspace."""


def feature(name: str, **options: Any) -> dict[str, Any]:
    return {f"{FEATURES}/{name}": options}


DOCKERFILE = f"FROM {IMAGE}\nARG VARIANT=none\nUSER root\nRUN echo $VARIANT >/variant\n"
DATABASE = (
    f'{{image: {IMAGE}, command: sleep infinity, restart: unless-stopped, volumes: ["data:/var/lib/db"], '
    'environment: {POSTGRES_USER: postgres}, healthcheck: {test: [CMD-SHELL, "true"], interval: 5s, retries: 5}}'
)
BUILD = {"dockerfile": "Dockerfile"}
DOCKER_SOCKET = "source=/var/run/docker.sock,target=/var/run/docker.sock,type=bind"
LOCAL_FOLDER = "source=${localWorkspaceFolder},target=/workspace,type=bind,consistency=cached"

TABLE: Mapping[str, PublicConfiguration] = {
    "Python, image only": PublicConfiguration(RUNS, properties={"image": IMAGE, "postCreateCommand": "echo pip"}),
    "Python, Dockerfile with arguments": PublicConfiguration(
        RUNS,
        properties={"build": {**BUILD, "context": "..", "args": {"VARIANT": "3.12"}}, "remoteUser": "root"},
        dockerfile=DOCKERFILE,
    ),
    "Python, features": PublicConfiguration(
        RUNS, properties={"image": IMAGE, "features": feature("python:1", version="3.12")}
    ),
    "Python, notebooks": PublicConfiguration(
        RUNS,
        properties={"image": IMAGE, "forwardPorts": [8888], "portsAttributes": {"8888": {"label": "notebook"}}},
    ),
    "Python, machine learning with GPUs": PublicConfiguration(
        WARNS,
        "runArgs --gpus=all is left out",
        {
            "image": IMAGE,
            "runArgs": ["--gpus", "all", "--shm-size=1g", "--ipc=host"],
            "hostRequirements": {"gpu": True},
        },
    ),
    "Node.js": PublicConfiguration(
        RUNS, properties={"image": IMAGE, "postCreateCommand": {"install": "echo npm", "build": "echo build"}}
    ),
    "Node.js, modules in a volume": PublicConfiguration(
        RUNS,
        properties={
            "image": IMAGE,
            "mounts": ["source=modules-${devcontainerId},target=${containerWorkspaceFolder}/node_modules,type=volume"],
        },
    ),
    "Node.js, work folder at a place of its own": PublicConfiguration(
        RUNS,
        properties={"image": IMAGE, "workspaceMount": LOCAL_FOLDER, "workspaceFolder": "/workspace"},
    ),
    "TypeScript framework, ports of the machine": PublicConfiguration(
        WARNS, "no port of the machine is opened", {"image": IMAGE, "appPort": [3000, "8080:8080"]}
    ),
    "TypeScript framework, features": PublicConfiguration(
        RUNS,
        properties={
            "image": IMAGE,
            "features": {**feature("node:1", version="lts"), **feature("git:1"), **feature("github-cli:1")},
        },
    ),
    "Go": PublicConfiguration(
        WARNS,
        "securityOpt seccomp=unconfined is left out",
        {"image": IMAGE, "runArgs": ["--cap-add=SYS_PTRACE", "--security-opt", "seccomp=unconfined"]},
    ),
    "Go, properties": PublicConfiguration(
        WARNS,
        "securityOpt seccomp=unconfined is left out",
        {"image": IMAGE, "capAdd": ["SYS_PTRACE"], "securityOpt": ["seccomp=unconfined"]},
    ),
    "Rust": PublicConfiguration(
        RUNS, properties={"image": IMAGE, "capAdd": ["SYS_PTRACE"], "remoteEnv": {"CARGO_HOME": "/tmp/cargo"}}
    ),
    "Rust, cache in a volume": PublicConfiguration(
        RUNS,
        properties={"image": IMAGE, "mounts": [{"source": "cargo", "target": "/usr/local/cargo", "type": "volume"}]},
    ),
    "C++, Dockerfile": PublicConfiguration(
        WARNS,
        "securityOpt",
        {"build": BUILD, "runArgs": ["--cap-add=SYS_PTRACE", "--security-opt=seccomp=unconfined"]},
        DOCKERFILE,
    ),
    "C++, kernel settings": PublicConfiguration(
        WARNS, "capAdd SYS_ADMIN is left out", {"image": IMAGE, "runArgs": ["--cap-add=SYS_ADMIN", "--init"]}
    ),
    "Java": PublicConfiguration(
        RUNS, properties={"image": IMAGE, "features": feature("java:1", version="21", installMaven="true")}
    ),
    "Java, keys of the user": PublicConfiguration(
        WARNS,
        "files of the machine cannot",
        {"image": IMAGE, "mounts": ["source=${localEnv:HOME}${localEnv:USERPROFILE}/.m2,target=/root/.m2,type=bind"]},
    ),
    "C#": PublicConfiguration(
        RUNS,
        properties={
            "image": IMAGE,
            "features": feature("dotnet:2"),
            "otherPortsAttributes": {"onAutoForward": "ignore"},
        },
    ),
    "PHP": PublicConfiguration(
        RUNS, properties={"image": IMAGE, "forwardPorts": [8080], "postStartCommand": "echo server"}
    ),
    "Ruby": PublicConfiguration(RUNS, properties={"image": IMAGE, "remoteUser": "dev", "waitFor": "postCreateCommand"}),
    "Ruby on Rails, Compose": PublicConfiguration(
        RUNS,
        properties={
            "dockerComposeFile": "compose.yaml",
            "service": "app",
            "workspaceFolder": "/workspaces/${localWorkspaceFolderBasename}",
            "features": feature("github-cli:1"),
            "containerEnv": {"DB_HOST": "db"},
            "forwardPorts": [3000],
        },
        dockerfile=DOCKERFILE,
        compose=f"""
services:
  app:
    build: {{context: .., dockerfile: .devcontainer/Dockerfile}}
    volumes: ["../..:/workspaces:cached"]
    command: sleep infinity
    depends_on: [db, redis]
  db: {DATABASE}
  redis: {{image: {IMAGE}, command: sleep infinity, volumes: ["redis:/data"], restart: unless-stopped}}
volumes: {{data: , redis: }}
""",
        services=("db", "redis"),
    ),
    "Elixir with a database, Compose": PublicConfiguration(
        WARNS,
        "service db: port 15432 of the machine is not opened; use 5432",
        {
            "dockerComposeFile": ["compose.yaml"],
            "service": "app",
            "runServices": ["db"],
            "shutdownAction": "none",
            "workspaceFolder": "/workspace",
        },
        compose=f"""
version: "3.8"
services:
  app:
    image: {IMAGE}
    user: root
    volumes: ["..:/workspace:cached", "deps:/workspace/deps"]
    network_mode: service:db
    tty: true
  db: {{image: {IMAGE}, command: sleep infinity, ports: ["15432:5432"], healthcheck: {{test: "true"}}}}
  tracing: {{image: {IMAGE}, command: sleep infinity}}
volumes: {{deps: }}
""",
        services=("db",),
    ),
    "Django with a database, Compose": PublicConfiguration(
        WARNS,
        "mount type=bind,source=~/.aws,target=/home/dev/.aws is left out",
        {"dockerComposeFile": "compose.yaml", "service": "web", "workspaceFolder": "/code", "overrideCommand": True},
        compose=f"""
x-environment: &environment {{POSTGRES_PASSWORD: "${{PASSWORD:-postgres}}"}}
services:
  web:
    image: {IMAGE}
    command: python manage.py runserver 0.0.0.0:8000
    volumes: ["..:/code", "~/.aws:/home/dev/.aws"]
    ports: ["8000:8000"]
    environment: *environment
    depends_on: {{db: {{condition: service_healthy}}}}
  db: {DATABASE}
volumes: {{data: }}
""",
        services=("db",),
    ),
    "Messages and search, Compose with limits of the machine": PublicConfiguration(
        WARNS,
        "service search: deploy is left out: the template has the limits",
        {"dockerComposeFile": "compose.yaml", "service": "app", "workspaceFolder": "/workspaces/demo"},
        compose=f"""
services:
  app: {{image: {IMAGE}, command: sleep infinity, volumes: ["..:/workspaces/demo"], init: true}}
  search:
    image: {IMAGE}
    command: sleep infinity
    ulimits: {{memlock: -1}}
    cap_add: [IPC_LOCK]
    deploy: {{resources: {{limits: {{memory: 2g}}}}}}
  broker: {{image: {IMAGE}, command: [sleep, infinity], hostname: kafka, networks: {{inner: {{aliases: [broker-1]}}}}}}
networks: {{inner: {{driver: bridge}}}}
""",
        services=("search", "broker"),
    ),
    "Containers of the machine, Compose": PublicConfiguration(
        WARNS,
        "docker.sock,target=/var/run/docker.sock is left out",
        {"dockerComposeFile": "compose.yaml", "service": "app", "workspaceFolder": "/workspaces/demo"},
        compose=f"""
services:
  app:
    image: {IMAGE}
    command: /bin/sh -c "while sleep 1000; do :; done"
    volumes: ["..:/workspaces/demo", "/var/run/docker.sock:/var/run/docker.sock"]
    security_opt: [seccomp:unconfined]
    network_mode: host
""",
    ),
    "Terraform": PublicConfiguration(
        RUNS, properties={"image": IMAGE, "features": {**feature("terraform:1"), **feature("aws-cli:1")}}
    ),
    "Kubernetes tools, Docker in Docker": PublicConfiguration(
        WARNS,
        "privileged is left out",
        {
            "image": IMAGE,
            "features": {**feature("docker-in-docker:2"), **feature("kubectl-helm-minikube:1")},
            "remoteUser": "root",
        },
    ),
    "Operator, Docker of the machine": PublicConfiguration(
        WARNS,
        "docker.sock,type=bind is left out",
        {"image": IMAGE, "features": feature("docker-outside-of-docker:1"), "mounts": [DOCKER_SOCKET]},
    ),
    "Operator, network of the machine": PublicConfiguration(
        WARNS,
        "runArgs --network=host is left out",
        {"build": BUILD, "runArgs": ["--network=host", "--init", "-e", "KIND_NETWORK=kind"]},
        DOCKERFILE,
    ),
    "Cloud tools, a script on the machine first": PublicConfiguration(
        WARNS, "initializeCommand is left out", {"image": IMAGE, "initializeCommand": "mkdir -p ~/.aws ~/.kube"}
    ),
    "Database, variables of a file": PublicConfiguration(
        WARNS,
        "--env-file=.devcontainer/devcontainer.env is left out",
        {"image": IMAGE, "runArgs": ["--env-file", ".devcontainer/devcontainer.env", "--name", "dev", "--rm"]},
    ),
    "Firmware, devices": PublicConfiguration(
        WARNS,
        "runArgs --device=/dev/ttyUSB0 is left out",
        {"build": BUILD, "runArgs": ["--privileged", "--device=/dev/ttyUSB0", "-v", "/dev/bus/usb:/dev/bus/usb"]},
        DOCKERFILE,
    ),
    "Robotics, desktop": PublicConfiguration(
        WARNS,
        "privileged is left out",
        {
            "image": IMAGE,
            "privileged": True,
            "runArgs": ["--net=host", "-e", "DISPLAY=${env:DISPLAY}", "--hostname=robot", "--ulimit", "nofile=1024"],
            "mounts": ["source=/tmp/.X11-unix,target=/tmp/.X11-unix,type=bind"],
            "workspaceMount": "source=${localWorkspaceFolder},target=/home/ws/src,type=bind",
            "workspaceFolder": "/home/ws/src",
        },
    ),
    "Documentation": PublicConfiguration(
        RUNS,
        properties={
            "name": "docs",
            "image": IMAGE,
            "customizations": {"vscode": {"extensions": ["a.b"], "settings": {"x": 1}}, "codespaces": {}},
            "extensions": ["a.b"],
            "postAttachCommand": "echo attached",
        },
    ),
    "Features of another namespace": PublicConfiguration(
        REFUSED,
        "is not from a source that the runner lists",
        {"image": IMAGE, "features": {"registry.example.com/other/features/tool:1": {}}},
    ),
    "Statistics, memory in tmpfs": PublicConfiguration(
        RUNS,
        properties={"image": IMAGE, "mounts": ["type=tmpfs,target=/scratch"], "runArgs": ["--shm-size=256m"]},
    ),
    "Compiler, options of builds": PublicConfiguration(
        WARNS,
        "build.options is left out",
        {"build": {**BUILD, "options": ["--format=docker"], "target": ""}, "updateRemoteUserUID": False},
        DOCKERFILE,
    ),
}
