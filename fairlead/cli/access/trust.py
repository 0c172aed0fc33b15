"""`fairlead trust`: which tokens of other systems are exchanged for access keys. The rules are in the Config.

A token of a CI system is only read here, to fill in its claims. It is neither verified nor sent to the server.
"""

import base64
import binascii
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from fairlead.cli.access.config import read_settings, update_settings
from fairlead.cli.access.keys import ScopeOptions, describe_scope
from fairlead.cli.ui.completion import complete_names
from fairlead.cli.ui.durations import format_duration, parse_duration
from fairlead.cli.ui.flags import ContextFlag, OutputFlag, flag, options_from
from fairlead.cli.ui.groups import create_group
from fairlead.cli.ui.output import Output, print_data, print_note, print_table
from fairlead.cli.ui.session import UsageError, open_session, read_input
from fairlead.client import ApiStatusError, Client, ClientError
from fairlead.core import json
from fairlead.core.body_errors import Malformed
from fairlead.core.objects import Object, get_path, name_of


def read_trust(client: Client) -> Object:
    """The settings of workload identity; empty if there are none."""
    return _trust_of(read_settings(client))


def update_trust(client: Client, update: Callable[[Object], None]) -> None:
    """Changes the settings of workload identity in place."""

    def update_all(settings: Object) -> None:
        trust = _trust_of(settings)
        update(trust)
        auth = settings.get("auth")
        settings["auth"] = {**(auth if isinstance(auth, dict) else {}), "workloadIdentity": trust}

    update_settings(client, update_all)


def add_rule(client: Client, rule: Object) -> str:
    """Adds a rule at the end, and returns the audience that tokens must have."""
    audience = ""
    default = _default_audience(client)

    def update(trust: Object) -> None:
        nonlocal audience
        rules: list[Any] = list(trust.get("rules") or ())
        if any(each.get("name") == rule["name"] for each in rules):
            advice = "choose another name, or remove it first with `fairlead trust remove`"
            raise ClientError(f"there is already a rule named {rule['name']}; {advice}")
        audience = trust.setdefault("audience", default)
        trust["rules"] = [*rules, rule]

    update_trust(client, update)
    return audience


def remove_rule(client: Client, name: str) -> None:
    def update(trust: Object) -> None:
        rules = list(trust.get("rules") or ())
        trust["rules"] = [each for each in rules if each.get("name") != name]
        if len(trust["rules"]) == len(rules):
            raise ClientError(f"there is no rule named {name}; `fairlead trust list` shows them")

    update_trust(client, update)


def _default_audience(client: Client) -> str:
    """An audience that no other installation has."""
    instance = client.whoami().get("instanceID")
    if not isinstance(instance, str) or not instance:
        raise ClientError("the server did not return the id of the installation; set the audience in the Config")
    return f"fairlead:{instance}"


def _trust_of(settings: Object) -> Object:
    found = get_path(settings, "auth.workloadIdentity")
    return dict(found) if isinstance(found, dict) else {}


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
    if str(file) == "-":
        content = sys.stdin.buffer.read(MAX_TOKEN_BYTES + 1)
    else:
        content = read_input(file, "save the token of a job there, or use - for stdin")
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


KEYS = "ownedaccesskeys"
RULE_LABEL = "service.sh/trust-rule"
GITHUB_URL, GITLAB_URL = "https://token.actions.githubusercontent.com", "https://gitlab.com"
DEFAULT_TTL = 900

group = create_group("Trust CI systems and clusters: their tokens are exchanged for access keys.")


NameArgument = Annotated[str, typer.Argument(help="Name of the rule.")]
ClaimFlag = Annotated[
    list[str] | None,
    flag("--claim", help="Claim that a token must have, with exactly this value. Repeatable.", metavar="N=V"),
]
TokenFlag = Annotated[
    Path | None,
    flag("--from-token", help="File with a token of a job, to fill in its ids; - for stdin.", metavar="FILE"),
]
PullRequestsFlag = Annotated[
    bool, typer.Option("--allow-pull-requests", help="Also trust runs for pull requests and merge requests.")
]
CaFlag = Annotated[
    Path | None, flag("--ca-file", help="PEM file with the CA of the issuer's certificate.", metavar="FILE")
]


@dataclass(frozen=True, slots=True)
class ResultOptions:
    """What a key may do."""

    principal: Annotated[
        str,
        flag("--as", help="Principal of the keys: user/NAME, team/NAME or serviceaccount/NAMESPACE/NAME.", metavar="P"),
    ]
    ttl: Annotated[
        int | None,
        flag("--ttl", help="Maximum lifetime of a key, up to 1h.", parser=parse_duration, metavar="T", default="15m"),
    ] = None
    scope: ScopeOptions = field(default_factory=ScopeOptions)
    context: ContextFlag = None

    def build(self, client: Client) -> Object:
        """The fields of a rule for the principal, the scope and the lifetime."""
        scope = self.scope.build()
        if scope is None:
            raise UsageError("set what the keys may be used for, such as --project or --scope-file")
        ttl = {"maxTTLSeconds": self.ttl} if self.ttl else {}
        return {**resolve_principal(client, self.principal), "scope": scope, **ttl}


@dataclass(frozen=True, slots=True)
class JobOptions:
    """Which jobs of a repository are trusted."""

    ref: Annotated[str | None, flag("--ref", help="Branch or tag, as in the claim ref.", metavar="REF")] = None
    environment: Annotated[str | None, flag("--environment", help="Environment of the job.", metavar="NAME")] = None
    claim: ClaimFlag = None
    from_token: TokenFlag = None
    allow_pull_requests: PullRequestsFlag = False
    ca_file: CaFlag = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GithubOptions:
    name: NameArgument
    result: ResultOptions
    repository_id: Annotated[
        str | None, flag("--repository-id", help="Id of the repository, as in the claim repository_id.", metavar="ID")
    ] = None
    jobs: JobOptions
    url: Annotated[str, typer.Option("--url", help="Issuer of another GitHub.", metavar="URL")] = GITHUB_URL


@dataclass(frozen=True, slots=True, kw_only=True)
class GitlabOptions:
    name: NameArgument
    result: ResultOptions
    project_id: Annotated[
        str | None, flag("--project-id", help="Id of the project, as in the claim project_id.", metavar="ID")
    ] = None
    jobs: JobOptions
    url: Annotated[str, typer.Option("--url", help="URL of another GitLab.", metavar="URL")] = GITLAB_URL


@dataclass(frozen=True, slots=True)
class IssuerOptions:
    name: NameArgument
    result: ResultOptions
    url: Annotated[str, flag("--url", help="Issuer, exactly as in the claim iss.", metavar="URL")]
    claim: ClaimFlag = None
    allow_pull_requests: PullRequestsFlag = False
    ca_file: CaFlag = None
    allow_loopback: Annotated[
        bool, typer.Option("--allow-loopback", help="Allow an issuer on the server's own machine.")
    ] = False


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    cluster_name: Annotated[
        str, typer.Argument(help="Name of the connected cluster.", autocompletion=complete_names("clusters"))
    ]
    result: ResultOptions
    namespace: Annotated[str, flag("--namespace", help="Namespace of the service account in the cluster.", metavar="N")]
    service_account: Annotated[str, flag("--service-account", help="Service account in the cluster.", metavar="S")]
    name: Annotated[str | None, flag("--name", help="Name of the rule.", default="CLUSTER-NAMESPACE-ACCOUNT")] = None
    allow_recreated: Annotated[
        bool, typer.Option("--allow-recreated", help="Also trust a later service account of the same name.")
    ] = False


@group.command("github")
@options_from(GithubOptions)
def github(options: GithubOptions) -> None:
    """Trust jobs of a GitHub repository, by its id."""
    _trust_jobs(options, options.repository_id, GITHUB_CLAIMS)


@group.command("gitlab")
@options_from(GitlabOptions)
def gitlab(options: GitlabOptions) -> None:
    """Trust jobs of a GitLab project, by its id."""
    _trust_jobs(options, options.project_id, GITLAB_CLAIMS)


def _trust_jobs(options: GithubOptions | GitlabOptions, repository: str | None, names: Sequence[str]) -> None:
    """`names` are the claims that a token fills in; the first one is the id of the repository."""
    url, jobs = options.url, options.jobs
    with open_session(options.result.context) as session:
        flags = {names[0]: repository, "ref": jobs.ref, "environment": jobs.environment}
        claims = {name: value for name, value in flags.items() if value}
        if jobs.from_token is not None:
            issuer, found = claims_from_token(jobs.from_token, names)
            if issuer != url:
                raise UsageError(f"the token is from the issuer {issuer or 'without a name'}; set it with --url")
            claims = {**found, **claims}
        elif names[0] not in claims:
            raise UsageError(f"set --{names[0].replace('_', '-')}, or --from-token with a token of a job")
        claims |= parse_claims(jobs.claim or ())
        source = {"issuer": url, "claims": claims, **_ca(jobs.ca_file), **_pull_requests(jobs)}
        _save(session.client, {"name": options.name, **source, **options.result.build(session.client)})


@group.command("issuer")
@options_from(IssuerOptions)
def issuer(options: IssuerOptions) -> None:
    """Trust tokens of any OpenID issuer with chosen claims."""
    with open_session(options.result.context) as session:
        claims = parse_claims(options.claim or ())
        if not claims:
            raise UsageError("set at least one --claim, or every token of the issuer would be accepted")
        source = {"issuer": options.url, "claims": claims, **_ca(options.ca_file), **_pull_requests(options)}
        if options.allow_loopback:
            source["allowLoopback"] = True
        _save(session.client, {"name": options.name, **source, **options.result.build(session.client)})


@group.command("cluster")
@options_from(ClusterOptions)
def cluster(options: ClusterOptions) -> None:
    """Trust a service account of a connected cluster."""
    with open_session(options.result.context) as session:
        name = options.name or f"{options.cluster_name}-{options.namespace}-{options.service_account}"
        source = resolve_cluster_account(
            session.client,
            options.cluster_name,
            options.namespace,
            options.service_account,
            pin=not options.allow_recreated,
        )
        _save(session.client, {"name": name, **source, **options.result.build(session.client)})
        print_note(f"send the field cluster={options.cluster_name} with the token")


@group.command("list")
def list_rules(context: ContextFlag = None, output: OutputFlag = Output.TABLE) -> None:
    """List the rules, and show the audience that tokens must have."""
    with open_session(context) as session:
        trust = read_trust(session.client)
        if output is not Output.TABLE:
            print_data(trust, output)
            return
        rows = [_row(rule) for rule in trust.get("rules") or ()]
        headers = ("NAME", "FROM", "CLAIMS", "AS", "TTL", "SCOPE")
        print_table(headers, rows, "no rules; add one with `fairlead trust github`, `gitlab`, `cluster` or `issuer`")
        for rule in trust.get("rules") or ():
            if problem := _find_missing_principal(session.client, rule):
                print_note(f"warning: {problem}")
        if trust.get("audience"):
            print_note(f"tokens must have the audience {trust['audience']}")


@group.command("remove")
def remove(
    name: NameArgument,
    context: ContextFlag = None,
) -> None:
    """Remove a rule, and revoke the keys that it has issued."""
    with open_session(context) as session:
        remove_rule(session.client, name)
        issued = [name_of(each) for each in session.client.list(KEYS, labels=f"{RULE_LABEL}={name}")]
        for key in issued:
            session.client.delete(KEYS, key)
        print_note(f"removed the rule {name}, and revoked {len(issued)} key{'' if len(issued) == 1 else 's'}")


def _find_missing_principal(client: Client, rule: Object) -> str:
    """Why no token is exchanged by a rule whose principal is gone; empty if it exists, or cannot be read."""
    name = rule.get("name")
    for kind in ("user", "team"):
        if principal := rule.get(kind):
            path = client.path(f"{kind}s", str(principal))
            what = f"the {kind} {principal}"
            break
    else:
        namespace, _, account = str(rule.get("serviceAccount") or "").partition("/")
        path = client.core_path("serviceaccounts", account, namespace=namespace)
        what = f"the service account {namespace}/{account}"
    try:
        uid = get_path(client.send("GET", path), "metadata.uid")
    except ApiStatusError as problem:
        if problem.code != 404:
            return ""
        return f"the rule {name} accepts no tokens: {what} is gone; `fairlead trust remove {name}` removes the rule"
    if rule.get("uid") and uid != rule["uid"]:
        return f"the rule {name} accepts no tokens: {what} is another one now; remove the rule, and add it again"
    return ""


def _save(client: Client, rule: Object) -> None:
    audience = add_rule(client, rule)
    print_note(f"added the rule {rule['name']}; request tokens with the audience {audience}")


def _ca(file: Path | None) -> Object:
    if file is None:
        return {}
    return {"ca": read_input(file, "set a PEM file with the CA of the issuer").decode(errors="replace")}


def _pull_requests(options: JobOptions | IssuerOptions) -> Object:
    return {"allowPullRequests": True} if options.allow_pull_requests else {}


def _row(rule: Any) -> Sequence[str]:
    account = f"{rule.get('namespace')}/{rule.get('serviceAccountName')}"
    claims = ", ".join(f"{name}={value}" for name, value in (rule.get("claims") or {}).items())
    principal = next((f"{kind}/{rule[kind]}" for kind in ("user", "team", "serviceAccount") if rule.get(kind)), "")
    return (
        str(rule.get("name")),
        f"cluster {rule['cluster']}" if rule.get("cluster") else str(rule.get("issuer")),
        account if rule.get("cluster") else claims,
        principal.lower() if principal.startswith("serviceAccount") else principal,
        format_duration(rule.get("maxTTLSeconds") or DEFAULT_TTL),
        "; ".join(describe_scope(rule.get("scope"), principal)),
    )
