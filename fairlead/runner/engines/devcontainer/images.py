"""References to images: which of them a repository may use.

All workspaces of a runner share its image store. Images that were built for a workspace have a name with its uid, which
only the shim gives. A reference by a digest or a part of one could name the image of another workspace, so only names
are accepted.
"""

import re

FEATURE_CONTENT = "dev_container_feature_content_temp"
"""The CLI's name for the files of features during a build, the same for all workspaces: two builds at the same time
would mix them up."""
BUILT = "vsc-"
"""How the names begin that the CLI gives to the images that it builds."""
OWN = "localhost/fairlead-"

_PART_OF_DIGEST = re.compile(r"(?:sha256:)?[0-9a-fA-F]+")
_REFERENCE = re.compile(r"[A-Za-z0-9][\w.\-/:@+]*")


def own_image(name: str, uid: str) -> str:
    """The name in the image store of an image that was built for a workspace."""
    return f"{OWN}{uid}/{name}"


def resolve_image(reference: str, uid: str) -> str | None:
    """The name in the store for a name that the CLI or a repository uses; None if it may not be used."""
    plain = reference.removeprefix("localhost/")
    if plain.startswith((BUILT, FEATURE_CONTENT)):
        return own_image(plain, uid)
    if reference.startswith((OWN, OWN.removeprefix("localhost/"))):
        return reference if reference.startswith(f"{OWN}{uid}/") else None
    if not _REFERENCE.fullmatch(reference) or _PART_OF_DIGEST.fullmatch(reference):
        return None
    return reference
