"""Compose: a devcontainer.json that names Compose files, and one of their services as the workspace.

No program reads these files but this package, and nothing in them reaches podman as it is: each service becomes the
properties of a devcontainer.json (`rendering.py`), which are adapted and checked as those of any repository. The
service of the workspace is the container that the dev container CLI creates; the others are started beside it by the
shim, with the same checks (`inside/services.py`), in the same network, user ids, limits and disk.

`loading.py` reads the files in the holder, `interpolation.py` replaces variables, `model.py` gives all spellings of a
property one form, and merges files.
"""
