"""Builds trust rules: principals, claims from flags, and claims from a token of the CI system.

The token is only read here, to fill in its claims. It is neither verified nor sent to the server.
"""

import base64
import binascii
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from fairlead.cli.ui.output import print_note
from fairlead.cli.ui.session import UsageError
from fairlead.client import ApiStatusError, Client, ClientError
from fairlead.core import json
from fairlead.core.body_errors import Malformed
from fairlead.core.files import read_file
from fairlead.core.objects import Object, get_path

MAX_TOKEN_BYTES = 16 * 1024
PRINCIPAL_FORMAT = "user/NAME, team/NAME or serviceaccount/NAMESPACE/NAME"
GITHUB_CLAIMS = ("repository_id", "repository_owner_id")
GITLAB_CLAIMS = ("project_id", "namespace_id")
"""Ids that stay the same when a repository or project is renamed, and are never given to another one."""
_OPTIONAL_CLAIMS = ("environment", "ref", "ref_type")


def resolve_principal(client: Client, text: str) -> Object:
    """The fields of a rule that name the principal, with the uid that it has now."""
    kind, _, name = text.partition("/")
    if kind in ("user", "team") and name and "/" not in name:
        return {kind: name, "uid": _read_uid(client, client.path(f"{kind}s", name), text)}
    namespace, _, account = name.partition("/")
    if kind == "serviceaccount" and namespace and account and "/" not in account:
        path = client.core_path("serviceaccounts", account, namespace=namespace)
        return {"serviceAccount": name, "uid": _read_uid(client, path, text)}
    raise UsageError(f"{text!r} is not a principal; use --as {PRINCIPAL_FORMAT}")


def resolve_cluster_account(client: Client, cluster: str, namespace: str, account: str, *, pin: bool) -> Object:
    """The fields of a rule for a service account of a connected cluster. With `pin`, a recreated one is another one."""
    source = {
        "cluster": cluster,
        "clusterUID": _read_uid(client, client.path("clusters", cluster), f"cluster {cluster}"),
        "namespace": namespace,
        "serviceAccountName": account,
    }
    if pin:
        parts = "/".join(quote(each, safe="") for each in (namespace, "serviceaccounts", account))
        path = f"/kubernetes/cluster/{quote(cluster, safe='')}/api/v1/namespaces/{parts}"
        source["serviceAccountUID"] = _read_uid(client, path, f"service account {namespace}/{account} in {cluster}")
    return source


def _read_uid(client: Client, path: str, what: str) -> str:
    try:
        uid = get_path(client.send("GET", path), "metadata.uid")
    except ApiStatusError as problem:
        if problem.code != 404:
            raise
        raise ClientError(f"{what} does not exist; create it first, or check the name") from None
    if not isinstance(uid, str) or not uid:
        raise ClientError(f"the server did not return the uid of {what}")
    return uid


def parse_claims(texts: Sequence[str]) -> dict[str, str]:
    """Claims from flags such as `ref=refs/heads/main`."""
    claims: dict[str, str] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name or not value:
            raise UsageError(f"{text!r} is not a claim; use the format NAME=VALUE")
        if name in claims:
            raise UsageError(f"the claim {name} is set twice; set it once")
        claims[name] = value
    return claims


def claims_from_token(file: Path, ids: Sequence[str]) -> tuple[str, dict[str, str]]:
    """The issuer of a token, and the claims for a rule: its ids, and the environment or else the branch."""
    found = _read_token(file)
    missing = [name for name in ids if not isinstance(found.get(name), str)]
    if missing:
        raise ClientError(f"the token has no {' and no '.join(missing)}; is it from another system?")
    claims = {name: found[name] for name in ids}
    for name in _OPTIONAL_CLAIMS:
        if isinstance(found.get(name), str) and found[name]:
            claims[name] = found[name]
            if name == "environment":
                break  # the branches that may deploy to an environment are a setting of the environment
    issuer = found.get("iss")
    print_note("from the token, which is not verified: " + ", ".join(f"{key}={value}" for key, value in claims.items()))
    return (issuer if isinstance(issuer, str) else ""), claims


def _read_token(file: Path) -> Object:
    content = sys.stdin.buffer.read(MAX_TOKEN_BYTES + 1) if str(file) == "-" else read_file(file)
    if content is None:
        raise UsageError(f"{file}: no such file; save the token of a job there, or use - for stdin")
    parts = content.strip().split(b".")
    if len(content) > MAX_TOKEN_BYTES or len(parts) != 3:
        raise UsageError(f"{file} does not contain a token: three parts that are separated by dots")
    try:
        value = json.decode(base64.urlsafe_b64decode(parts[1] + b"=" * (-len(parts[1]) % 4)))
    except (binascii.Error, Malformed, ValueError):
        value = None
    if not isinstance(value, dict):
        raise UsageError(f"{file} does not contain a token: its claims cannot be decoded")
    return value
