"""The engine for dev containers: the CLI of the dev container project, with podman.

engine.py           `DevcontainerEngine`: the methods of the contract
settings.py         what the operator of the machine chooses
layout.py           the files of a workspace on the machine
preparation.py      user ids, network, folders and grant of a workspace
networks_folder.py  where podman looks for networks
creation.py         `up`: from a specification to a running container
sources.py          which sources are allowed, and how they are fetched
sandbox.py          the container without an image that clones, copies and stands in for failed builds
configuration.py    finds and reads the devcontainer.json
policy.py           what a devcontainer.json may ask for
grant.py            what a workspace may have, for the policy and the shim
shim.py             the program between the CLI and podman
command_lines.py    which commands of podman the CLI may run, and with which options
dockerfile.py       what a Dockerfile may ask for
images.py           which images a repository may name
image_checks.py     which images it may not use, whatever their names
builds.py           builds, whose results workspaces of one repository share
build_key.py        what the result of a build depends on
build_limits.py     the cgroup of builds
detached.py         the CLI in its own session, which outlives the runner
observation.py      state and usage of a workspace
ports.py            ports inside a container
firewall.py         what containers cannot reach
podman.py           podman for the engine's own purposes
cleanup.py          removes what workspaces leave
collection.py       removes images that no workspace uses
diagnosis.py        what the machine lacks
"""
