"""Charts in OCI registries: tags, the manifest of a chart, and the blob with its archive.

A registry may ask for a login with the address of a token server. As other clients do, the username and password are
sent there, because the registry itself has named it; to the registry goes only the token. No other server gets either:
registries redirect to storage services, which may not ask for a login, and neither may the token server redirect one.
"""

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urljoin, urlsplit

from fairlead.controllers.helm.http_client import (
    CHART_NOT_FOUND,
    GONE,
    INVALID_CHART,
    INVALID_REPOSITORY,
    LOGIN_FAILED,
    NOT_FOUND,
    OK,
    REPOSITORY_NOT_FOUND,
    UNAUTHORIZED,
    Answer,
    Credential,
    Download,
    HttpClient,
    reject_status,
)
from fairlead.controllers.helm.versions import find_best, is_strict_version, parse_version
from fairlead.controllers.instances.remote_errors import ERROR, InstanceError
from fairlead.core import json
from fairlead.core.body_errors import Malformed

PLACE, TOKEN_PLACE = "the registry", "the token server of the registry"
NO_REGISTRY = "there is no OCI registry at the oci:// URL of the chart; correct its host, or use an https:// repository"
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
CONFIG_TYPE = "application/vnd.cncf.helm.config.v1+json"
CONTENT_TYPES = ("application/vnd.cncf.helm.chart.content.v1.tar+gzip", "application/tar+gzip")
"""Of the layer with the archive. The second one is that of early versions of Helm."""
MAX_DOCUMENT_BYTES = 4 * 1024 * 1024
"""Of a manifest, and of one page of tags. Registries need not accept larger manifests."""
MAX_TOKEN_BYTES = 64 * 1024
MAX_TAG_PAGES, MAX_TAGS = 50, 50_000

_DOCKER_HUB, _DOCKER_HUB_HOST = "docker.io", "registry-1.docker.io"
_component = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_name_pattern = re.compile(rf"{_component}(?:/{_component})*", re.ASCII)
_tag_pattern = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}", re.ASCII)
_digest_pattern = re.compile(r"(?P<algorithm>sha256|sha512):(?P<digest>[0-9a-f]{64}|[0-9a-f]{128})", re.ASCII)
_challenge_pattern = re.compile(r'([A-Za-z]+)((?: ?,? ?[A-Za-z_]+=(?:"(?:[^"\\]|\\.)*"|[^\s",]+))*)', re.ASCII)
_parameter_pattern = re.compile(r'([A-Za-z_]+)=(?:"((?:[^"\\]|\\.)*)"|([^\s",]+))', re.ASCII)
_pull_scope_pattern = re.compile(r"repository:[a-z0-9._/:-]+:pull", re.ASCII)
_token_pattern = re.compile(r"[\x21-\x7e]+", re.ASCII)
_next_page_pattern = re.compile(r'<([^<>]*)>\s*;\s*rel="?next"?', re.ASCII)
_MAX_CHALLENGE_LENGTH = 4096


@dataclass(frozen=True, slots=True)
class ChartReference:
    """A chart in a registry: `origin` is an https URL without path, `name` the repository in the registry."""

    origin: str
    name: str
    tag: str = ""


def parse_reference(url: str) -> ChartReference:
    """Parses `oci://host/path/chart`, with a tag or without. Raises InstanceError."""
    parts = urlsplit(url)
    host = _DOCKER_HUB_HOST if parts.netloc == _DOCKER_HUB else parts.netloc
    name, _, tag = parts.path.strip("/").partition(":")
    tag = tag.replace("+", "_")
    if parts.query or parts.fragment or not _name_pattern.fullmatch(name) or (tag and not _tag_pattern.fullmatch(tag)):
        message = "the oci:// URL of the chart must have lower-case names of a repository and a chart; correct it"
        raise InstanceError(INVALID_CHART, message, ERROR)
    return ChartReference(f"https://{host}", name, tag)


class OciRegistry:
    """Fetches one chart. `credential` is for its registry."""

    def __init__(self, client: HttpClient, reference: ChartReference, credential: Credential | None) -> None:
        self._client = client
        self._reference = reference
        self._credential = credential
        self._authorization = ""

    async def save(self, version: str, path: Path, max_bytes: int) -> str:
        """Writes the archive of the version that is requested to a file. Returns its digest, as sha256 in hexadecimal.
        Raises InstanceError."""
        tag = self._reference.tag or await self._find_tag(version)
        layer = _find_layer(await self._get_document(f"manifests/{tag}", MANIFEST_TYPE, _no_version(version or tag)))
        found = _digest_pattern.fullmatch(str(layer.get("digest")))
        if found is None:
            raise _not_a_chart()
        missing = "the registry does not have the archive of the chart; push the chart again"
        async with self._open(f"blobs/{found[0]}", "*/*", max_bytes, missing) as answer:
            digest = await answer.save(path, found["algorithm"])
        if digest != found["digest"]:
            raise InstanceError(INVALID_CHART, "the archive of the chart has another digest than its manifest", ERROR)
        return digest if found["algorithm"] == "sha256" else ""

    async def _find_tag(self, version: str) -> str:
        """The tag of a version, which is not looked up if it is exact. Tags have `_` in place of `+`."""
        if parse_version(version) is not None:
            return version.replace("+", "_")
        versions = [tag.replace("_", "+") for tag in await self._list_tags()]
        found = find_best((each for each in versions if is_strict_version(each)), version)
        if found is None:
            raise InstanceError(CHART_NOT_FOUND, _no_version(version), ERROR)
        return found.replace("+", "_")

    async def _list_tags(self) -> list[str]:
        tags: list[str] = []
        missing = "the registry has no such chart; correct the repository and the name of the chart"
        path = "tags/list"
        for _ in range(MAX_TAG_PAGES):
            async with self._open(path, "application/json", MAX_DOCUMENT_BYTES, missing) as answer:
                listed = _parse_object(await answer.read()).get("tags") or []
                link = _next_page_pattern.search(answer.headers.get("link", ""))
            if not isinstance(listed, list):
                raise _invalid_response()
            tags.extend(each for each in listed if isinstance(each, str) and _tag_pattern.fullmatch(each))
            if link is None or len(tags) > MAX_TAGS:
                break
            path = self._relative_page(path, link[1])
        return tags[:MAX_TAGS]

    def _relative_page(self, path: str, link: str) -> str:
        """The path of the next page below the repository of the chart. Links elsewhere are not followed."""
        base = self._url("")
        try:
            url = urljoin(self._url(path), link)
        except ValueError:
            url = ""
        if not url.startswith(f"{base}tags/list?"):
            raise _invalid_response()
        return url.removeprefix(base)

    def _url(self, path: str) -> str:
        return f"{self._reference.origin}/v2/{self._reference.name}/{path}"

    async def _get_document(self, path: str, accept: str, missing: str) -> Mapping[str, Any]:
        async with self._open(path, accept, MAX_DOCUMENT_BYTES, missing) as answer:
            return _parse_object(await answer.read())

    @asynccontextmanager
    async def _open(self, path: str, accept: str, max_bytes: int, missing: str) -> AsyncIterator[Answer]:
        """Yields a response with status 200, after a login if the registry asks for one."""
        download = Download(self._url(path), PLACE, max_bytes, accept, self._authorization)
        async with self._client.open(download) as answer:
            if answer.status == OK:
                yield answer
                return
            status = answer.status
            is_challenge = status == UNAUTHORIZED and not answer.is_redirected and not self._authorization
            challenge = answer.headers.get("www-authenticate", "")
        if is_challenge:
            self._authorization = await self._login(challenge)
            async with self._client.open(replace(download, authorization=self._authorization)) as answer:
                if answer.status == OK:
                    yield answer
                    return
                status = answer.status
        if status in (NOT_FOUND, GONE):
            await self._check_registry()
        reject_status(status, PLACE, InstanceError(CHART_NOT_FOUND, missing, ERROR))

    async def _check_registry(self) -> None:
        """Raises InstanceError if the host is no registry: each one has the path /v2/, perhaps after a login."""
        download = Download(f"{self._reference.origin}/v2/", PLACE, MAX_DOCUMENT_BYTES)
        async with self._client.open(download) as answer:
            if answer.status in (NOT_FOUND, GONE):
                raise InstanceError(REPOSITORY_NOT_FOUND, NO_REGISTRY, ERROR)

    async def _login(self, challenge: str) -> str:
        """The Authorization header for the registry."""
        schemes = parse_challenges(challenge)
        if "bearer" in schemes:
            return f"Bearer {await self._request_token(schemes['bearer'])}"
        if self._credential is not None and "basic" in schemes:
            return self._credential.basic
        message = "the registry asks for a login; set the username and password of the chart"
        raise InstanceError(LOGIN_FAILED, message, ERROR)

    async def _request_token(self, parameters: Mapping[str, str]) -> str:
        realm = parameters.get("realm", "")
        scope = parameters.get("scope", "")
        # A token with more permissions than this download needs is not requested, whatever the registry asks for.
        if not _pull_scope_pattern.fullmatch(scope):
            scope = f"repository:{self._reference.name}:pull"
        query = {"service": parameters["service"], "scope": scope} if "service" in parameters else {"scope": scope}
        url = f"{realm}{'&' if '?' in realm else '?'}{urlencode(query)}"
        authorization = self._credential.basic if self._credential is not None else ""
        download = Download(url, TOKEN_PLACE, MAX_TOKEN_BYTES, "application/json", authorization)
        async with self._client.open(download) as answer:
            if answer.status != OK:
                message = f"{TOKEN_PLACE} does not exist; check the registry"
                reject_status(answer.status, TOKEN_PLACE, InstanceError(REPOSITORY_NOT_FOUND, message, ERROR))
            document = _parse_object(await answer.read())
        token = document.get("token") or document.get("access_token")
        if not isinstance(token, str) or not _token_pattern.fullmatch(token):
            raise _invalid_response()
        return token


def parse_challenges(header: str) -> dict[str, dict[str, str]]:
    """The parameters of a WWW-Authenticate header, by scheme in lower case."""
    challenges: dict[str, dict[str, str]] = {}
    text = " ".join(header[:_MAX_CHALLENGE_LENGTH].split())  # runs of spaces would make the patterns slow
    for scheme, parameters in _challenge_pattern.findall(text):
        found = {
            name.lower(): re.sub(r"\\(.)", r"\1", quoted) or plain
            for name, quoted, plain in _parameter_pattern.findall(parameters)
        }
        challenges.setdefault(scheme.lower(), found)
    return challenges


def _find_layer(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    """The descriptor of the archive in a manifest."""
    config = manifest.get("config")
    layers = manifest.get("layers")
    if not isinstance(config, dict) or config.get("mediaType") != CONFIG_TYPE or not isinstance(layers, list):
        raise _not_a_chart()
    for layer in layers:
        if isinstance(layer, dict) and layer.get("mediaType") in CONTENT_TYPES:
            return layer
    raise _not_a_chart()


def _parse_object(content: bytes) -> Mapping[str, Any]:
    try:
        document = json.decode_body(content)  # in slices: this thread shares the interpreter with the server
    except Malformed:
        document = None
    if not isinstance(document, dict):
        raise _invalid_response()
    return document


def _no_version(version: str) -> str:
    requested = f'version "{version}" of the chart' if version else "release of the chart"
    return f"the registry has no {requested}; correct the repository, the name or the version of the chart"


def _not_a_chart() -> InstanceError:
    message = "the registry has something other than a Helm chart under this name; correct the name of the chart"
    return InstanceError(INVALID_CHART, message, ERROR)


def _invalid_response() -> InstanceError:
    message = "the registry or its token server sent an invalid response; check that the URL is that of a registry"
    return InstanceError(INVALID_REPOSITORY, message, ERROR)
