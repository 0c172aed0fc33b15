"""The settings that limit what is stored. `declarations.py` has them as fields, `registry/limits.py` their defaults."""

from typing import Annotated

from fairlead.settings.values import SettingInfo

_MAX_OBJECTS, _MIN_BYTES, _MAX_BYTES = 10**9, 1024, 2**40

ObjectsPerNamespace = Annotated[
    int, SettingInfo("Limits", "Maximum number of objects that users can store in one namespace", maximum=_MAX_OBJECTS)
]
BytesPerNamespace = Annotated[
    int,
    SettingInfo(
        "Limits",
        "Maximum total size in bytes of the objects in one namespace",
        minimum=_MIN_BYTES,
        maximum=_MAX_BYTES,
    ),
]
ObjectsPerUser = Annotated[
    int, SettingInfo("Limits", "Maximum number of objects that one user can store, of all kinds", maximum=_MAX_OBJECTS)
]
BytesPerUser = Annotated[
    int,
    SettingInfo(
        "Limits",
        "Maximum total size in bytes of the objects that one user stores",
        minimum=_MIN_BYTES,
        maximum=_MAX_BYTES,
    ),
]
