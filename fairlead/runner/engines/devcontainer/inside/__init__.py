"""Programs that run in a holder, as its unprivileged user. They import the standard library and each other only.

launch.py       starts a program with an environment that comes through an open file
bind_socket.py  gives a socket of the runner a name in the private folder
shim.py         the program between the dev container CLI and podman
run_options.py  which options of `podman run` the CLI may use
home.py         a volume for the home folder of the user
snapshots.py    copies from a snapshot back into the container
services.py     starts the services of Compose files beside the workspace
builds.py       builds, whose results workspaces of one repository share
announcement.py names what is built to the runner, before anything of it runs
build_key.py    what the result of a build depends on
dockerfile.py   which images and files a Dockerfile uses
base_images.py  prints which images a Dockerfile begins with
pulls.py        `podman pull`, with what it said last
"""
