"""Images and features of a registry whose operator is hostile, as `image_registry.py` serves them."""

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG = "application/vnd.docker.container.image.v1+json"
ARCHIVE_LAYER = "application/vnd.docker.image.rootfs.diff.tar"
ZIPPED_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True)
class Entry:
    """A member of the archive of a layer."""

    name: str
    content: bytes = b""
    kind: bytes = tarfile.REGTYPE
    link: str = ""
    mode: int = 0o755
    uid: int = 0
    device: tuple[int, int] = (0, 0)
    attributes: Mapping[str, str] = field(default_factory=dict)


def make_layer(entries: Sequence[Entry]) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for each in entries:
            member = tarfile.TarInfo(each.name)
            member.type = each.kind
            member.size = len(each.content)
            member.linkname = each.link
            member.mode = each.mode
            member.uid = each.uid
            member.gid = each.uid
            member.devmajor, member.devminor = each.device
            member.pax_headers = dict(each.attributes)
            archive.addfile(member, io.BytesIO(each.content))
    return content.getvalue()


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def describe_config(diff_ids: Sequence[str], config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of an image for this machine."""
    return {
        "architecture": ARCHITECTURES[os.uname().machine],
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": list(diff_ids)},
    }


@dataclass(frozen=True, slots=True)
class HostileImage:
    """An image that a registry offers. `behaviour` changes how it answers, by a part of the path of a request:
    `status`, `headers`, `body`, `endless` zeros or what to `repeat` after the body, `seconds` that pass before, and
    `after` how many requests it begins."""

    layers: Sequence[bytes] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    base: Path | None = None
    """An archive that is the first layer."""
    manifest: Mapping[str, Any] = field(default_factory=dict)
    """Replaces parts of the manifest."""
    behaviour: Mapping[str, Any] = field(default_factory=dict)

    def write(self, folder: Path, texts: Mapping[str, str] | None = None) -> None:
        """Into a folder that `image_registry` serves, in the form of `podman push` to `dir:`. `texts` are replaced in
        the manifest and in answers."""
        folder.mkdir(parents=True)
        layers = [(digest(each), len(each)) for each in self.layers]
        if self.base is not None:
            with self.base.open("rb") as file:
                layers.insert(
                    0, (f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}", self.base.stat().st_size)
                )
            (folder / layers[0][0].removeprefix("sha256:")).symlink_to(self.base)
        config = json.dumps(describe_config([name for name, _ in layers], self.config)).encode()
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {"mediaType": CONFIG, "size": len(config), "digest": digest(config)},
            "layers": [{"mediaType": ARCHIVE_LAYER, "size": size, "digest": name} for name, size in layers],
            **self.manifest,
        }
        for name, described in (("manifest.json", manifest), ("behaviour.json", self.behaviour)):
            text = json.dumps(described)
            for marked, value in (texts or {}).items():
                text = text.replace(marked, value)
            (folder / name).write_text(text)
        for content in (config, *self.layers):
            (folder / digest(content).removeprefix("sha256:")).write_bytes(content)


FEATURE_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
FEATURE_CONFIG = "application/vnd.devcontainers"
FEATURE_LAYER = "application/vnd.devcontainers.layer.v1+tar"
FEATURE_ANNOTATION = "dev.containers.metadata"
INSTALL = "#!/bin/sh\n"


@dataclass(frozen=True, slots=True)
class HostileFeature:
    """A feature of dev containers that a registry offers."""

    metadata: Mapping[str, Any] = field(default_factory=dict)
    install: str = INSTALL
    entries: Sequence[Entry] = ()
    """Further members of its archive."""
    announced: Mapping[str, Any] | None = None
    """What the manifest says of its metadata, if it says something."""
    archive: bytes = b""
    """In place of the archive with all that."""
    manifest: Mapping[str, Any] = field(default_factory=dict)
    """Replaces parts of the manifest."""
    behaviour: Mapping[str, Any] = field(default_factory=dict)
    """As that of images."""

    def write(self, folder: Path) -> None:
        """Into a folder that `image_registry` serves. The name of the folder is that of the feature."""
        folder.mkdir(parents=True)
        described = {"id": folder.name, "version": "1.0.0", "name": folder.name, **self.metadata}
        entries = [
            Entry("./devcontainer-feature.json", json.dumps(described).encode()),
            Entry("./install.sh", self.install.encode()),
            *self.entries,
        ]
        archive = self.archive or make_layer(entries)
        manifest = {
            "schemaVersion": 2,
            "mediaType": FEATURE_MANIFEST,
            "config": {"mediaType": FEATURE_CONFIG, "size": 2, "digest": digest(b"{}")},
            "layers": [{"mediaType": FEATURE_LAYER, "size": len(archive), "digest": digest(archive)}],
            **self.manifest,
        }
        if self.announced is not None:
            announced = {"id": folder.name, "version": "1.0.0", "name": folder.name, **self.announced}
            manifest["annotations"] = {FEATURE_ANNOTATION: json.dumps(announced)}
        (folder / "manifest.json").write_text(json.dumps(manifest))
        (folder / "behaviour.json").write_text(json.dumps(self.behaviour))
        (folder / digest(archive).removeprefix("sha256:")).write_bytes(archive)
