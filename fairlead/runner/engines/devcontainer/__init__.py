"""The engine for dev containers: the CLI of the dev container project, with podman, in holders.

engine.py            `DevcontainerEngine`: the methods of the contract
settings.py          what the operator of the machine chooses
layout.py            the files of a workspace on the machine
preparation.py       user ids, network, limits, folders and grant of a workspace
isolation/           holders: namespaces, control groups, disk and network of a workspace
creation.py          `up`: from a specification to a running container
sources.py           which sources are allowed, and how they are fetched
configuration.py     finds and reads the devcontainer.json
session_environment.py  variables of sessions: `remoteEnv`, and secrets that the template names
adaptation.py        adapts a devcontainer.json to what a workspace can have
compose/             Compose files, as a devcontainer.json of one container and a plan for the services beside it
snapshots.py         what replaced containers had outside of volumes and the work folder
snapshot_list.py     which of these there are, and for how long
services.py          services of Compose files, as the runner sees them
policy.py            what a devcontainer.json may ask for
grant.py             what a workspace may have, for the policy and the shim
inside/              programs that run in the holder, the shim between the CLI and podman among them
recovery.py          the container that stands in for one that cannot be built
shared_images.py     archives of images that workspaces of one repository share
prebuilds.py         builds of images before a workspace needs them
build_keys.py        which image of a workspace may become such an archive
pulled_images.py     images of registries, which all workspaces share
image_names.py       which texts name an image of a registry
private_images.py    images for which the project has credentials, of one workspace alone
detached.py          the CLI in its own session, which outlives the runner
leader.py            the program that runs it, and takes what it prints
observation.py       state and usage of a workspace
ports.py             ports inside a container
sockets.py           sockets of the runner that programs in a container can connect to
git_config.py        the configuration of git in a container
connections.py       bytes of connections to them
programs.py          runs programs to their end
cleanup.py           removes what workspaces leave
former.py            containers and volumes of earlier versions
diagnosis.py         what the machine lacks
"""
