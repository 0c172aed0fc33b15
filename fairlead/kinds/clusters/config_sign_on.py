"""The settings of single sign-on in the Config: `auth.connectors` and `auth.groupMappings`.

A connector is one OpenID provider. Rules map what a provider says about a user to teams and groups. `config.py`
includes the schemas and calls `sign_on_errors`; `authn/sign_on_settings.py` reads the settings.
"""

import ipaddress
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from urllib.parse import SplitResult, urlsplit

from cryptography import x509

from fairlead.core.addresses import Address, all_forms, is_loopback, is_no_host, is_protected
from fairlead.core.objects import Object, get_path
from fairlead.core.user import HOST_ACCOUNT_NAMES
from fairlead.registry import limits
from fairlead.registry.schema import Schema, array, boolean, enum, integer, mapping, obj, string

MAX_CONNECTORS = 20
MAX_RULES = 500
MAX_SCOPES = 32
MAX_PARAMETERS = 16
MIN_REFRESH_SECONDS, MAX_REFRESH_SECONDS = 5, 24 * 3600
MAX_STALE_SECONDS = 7 * 24 * 3600
MAX_CLAIM_LENGTH = 256

SIGNING_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
CLIENT_AUTH_METHODS = ("client_secret_basic", "client_secret_post")
ALWAYS_SUFFIX, SUFFIX_IF_TAKEN = "always", "ifTaken"
PROMPTS = ("consent", "login", "select_account")

RESERVED_IDS = frozenset(
    {"password", "methods", "logout", "token", "device", "authorize", "revoke", "saml", "oidc", "local"}
)
"""Ids that no connector can have: paths below `/auth/` use them."""
RESERVED_PARAMETERS = frozenset(
    {
        *("client_id", "client_secret", "code_challenge", "code_challenge_method", "nonce", "redirect_uri", "request"),
        *("request_uri", "response_mode", "response_type", "scope", "state", "prompt", "registration"),
    }
)
"""Parameters of the authorization request that the server sets itself."""
FORBIDDEN_GROUP_PREFIXES = ("service:user:", "service:team:", "system:serviceaccount", HOST_ACCOUNT_NAMES)
"""Groups that stand for one principal. A rule names teams instead."""

_ID = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")
_SCOPE = re.compile(r"[!#-\[\]-~]{1,256}")
_PRINTABLE = re.compile(r"[!-~]{1,512}")
_PARAMETER = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_DOMAIN = re.compile(r"(?=.{1,253}$)[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*")


def _bounded(description: str, minimum: int, maximum: int) -> Schema:
    return {**integer(description, minimum=minimum, bits=32), "maximum": maximum}


def _claim(description: str) -> Schema:
    return string(f"{description} A dot separates the names of nested claims.", max_length=MAX_CLAIM_LENGTH)


OIDC = obj(
    "The OpenID provider, and which of its users can sign in.",
    required=("issuerURL", "clientId"),
    issuerURL=string(
        "URL of the provider, exactly as it is in the provider's discovery document and tokens.", max_length=limits.URL
    ),
    clientId=string("Client ID of this server at the provider."),
    clientSecretRef=obj(
        "The Secret with the client secret. Omit it for a public client.",
        required=("name",),
        namespace=string("Namespace of the Secret. Defaults to `service-system`."),
        name=string("Name of the Secret."),
        key=string("Key within the Secret. Defaults to `clientSecret`."),
    ),
    clientAuthMethod=enum(
        "How the client secret is sent. Defaults to what the provider supports, `client_secret_basic` first.",
        *CLIENT_AUTH_METHODS,
    ),
    scopes=array(
        string(), "Scopes to request. Defaults to openid, profile, email and offline_access.", max_items=MAX_SCOPES
    ),
    prompt=enum(
        "The `prompt` parameter of the request. Some providers issue a refresh token only with `consent`.",
        *PROMPTS,
    ),
    extraAuthParameters=mapping(
        string(), "Further parameters of the authorization request.", max_properties=MAX_PARAMETERS
    ),
    usernameClaim=_claim("Claim with the preferred user name. Defaults to `preferred_username`."),
    nameClaim=_claim("Claim with the display name. Defaults to `name`."),
    emailClaim=_claim("Claim with the email address. Defaults to `email`."),
    groupsClaim=_claim("Claim with the groups. Defaults to `groups`."),
    ca=string(
        "CA certificates of the provider in PEM. Defaults to those of the system.", max_length=limits.CONFIG_TEXT
    ),
    signingAlgorithms=array(
        enum("A signature algorithm.", *SIGNING_ALGORITHMS),
        "Accepted signature algorithms of tokens. Defaults to all asymmetric ones.",
        max_items=len(SIGNING_ALGORITHMS),
    ),
    allowLoopback=boolean("Allow a provider on a loopback address, for tests. Defaults to false."),
    allowedGroups=array(
        string(), "Only users in one of these groups of the provider can sign in.", max_items=limits.GROUPS
    ),
    allowedDomains=array(string(), "Only users with an email address in one of these domains can sign in."),
    requireVerifiedEmail=boolean(
        "The email address must be verified by the provider. Defaults to true if allowedDomains is set, else to false."
    ),
    allowUnmapped=boolean(
        "Users that no rule in auth.groupMappings matches can sign in. Defaults to true if no rule is for this "
        "connector, else to false."
    ),
    createUsers=boolean("Create a user at the first sign-in. If false, the user must exist. Defaults to true."),
    userNameSuffix=enum(
        "When the name of a new user gets a suffix that cannot be chosen: `ifTaken`, if another user has the name, or "
        "`always`. Defaults to ifTaken.",
        ALWAYS_SUFFIX,
        SUFFIX_IF_TAKEN,
    ),
    refreshIntervalSeconds=_bounded(
        "How often each session is checked with the provider, in seconds. Defaults to 600.",
        MIN_REFRESH_SECONDS,
        MAX_REFRESH_SECONDS,
    ),
    maxStaleSeconds=_bounded(
        "How long sessions go on while the provider cannot be reached, in seconds. Defaults to 3600.",
        0,
        MAX_STALE_SECONDS,
    ),
    postLogoutURLs=array(
        string(max_length=limits.URL),
        "Addresses to which the provider may redirect after a logout, in addition to the console.",
        max_items=MAX_SCOPES,
    ),
)

CONNECTOR = obj(
    required=("id", "oidc"),
    id=string("Name of the connector in addresses and in the names of groups. Lower-case letters, digits and dashes."),
    displayName=string("Text of the button on the sign-in page. Defaults to the id."),
    oidc=OIDC,
)

GROUP_MAPPING = obj(
    required=("connector", "value"),
    id=string("Name of the rule in the audit log. Defaults to its position, such as `rule-1`."),
    connector=string("Id of the connector whose users the rule is for."),
    claim=_claim("Claim that is compared. Defaults to the groups claim of the connector."),
    value=string("The value to find in the claim: an exact match, case-sensitive."),
    teams=array(string(), "Teams that matching users are members of."),
    groups=array(string(), "Groups that matching users are in. Admin groups make them administrators."),
)

SIGN_ON_FIELDS = {
    "connectors": array(CONNECTOR, "OpenID providers that users can sign in with.", max_items=MAX_CONNECTORS),
    "groupMappings": array(
        GROUP_MAPPING, "Rules that give teams and groups to users of connectors, in order.", max_items=MAX_RULES
    ),
}


def sign_on_errors(settings: Object) -> Iterator[str]:
    """What is wrong with settings that match the schema. Each message starts with the path."""
    connectors = get_path(settings, "auth.connectors") or []
    for index, connector in enumerate(connectors):
        path = f"auth.connectors[{index}]"
        yield from _id_errors(connector["id"], f"{path}.id")
        yield from _oidc_errors(connector["oidc"], f"{path}.oidc")
    yield from _duplicates([each["id"] for each in connectors], "auth.connectors", "id")
    issuers = [each["oidc"]["issuerURL"] for each in connectors]
    yield from _duplicates(issuers, "auth.connectors", "oidc.issuerURL")
    ids = {each["id"] for each in connectors}
    rules = get_path(settings, "auth.groupMappings") or []
    for index, rule in enumerate(rules):
        yield from _rule_errors(rule, f"auth.groupMappings[{index}]", ids)
    yield from _duplicates([each["id"] for each in rules if each.get("id")], "auth.groupMappings", "id")


def _id_errors(id: str, path: str) -> Iterator[str]:
    if not _ID.fullmatch(id):
        yield f"{path}: must be 1 to 40 lower-case letters, digits and dashes, such as `okta`"
    elif id in RESERVED_IDS:
        yield f"{path}: {id} is reserved; choose another one"


def _duplicates(values: Sequence[str], path: str, field: str) -> Iterator[str]:
    for value, count in Counter(values).items():
        if count > 1:
            yield f"{path}: {count} entries have the same {field}, {value}; it must be unique"


def _oidc_errors(oidc: Object, path: str) -> Iterator[str]:
    yield from _issuer_errors(oidc["issuerURL"], f"{path}.issuerURL", bool(oidc.get("allowLoopback")))
    if not _PRINTABLE.fullmatch(oidc["clientId"]):
        yield f"{path}.clientId: must be 1 to 512 printable ASCII characters without spaces"
    if "clientSecretRef" in oidc and not (oidc["clientSecretRef"] or {}).get("name"):
        yield f"{path}.clientSecretRef.name: must be the name of a Secret"
    yield from _scope_errors(oidc.get("scopes"), f"{path}.scopes")
    for name in ("usernameClaim", "nameClaim", "emailClaim", "groupsClaim"):
        yield from _claim_errors(oidc.get(name), f"{path}.{name}")
    yield from _ca_errors(oidc.get("ca"), f"{path}.ca")
    yield from _parameter_errors(oidc.get("extraAuthParameters") or {}, f"{path}.extraAuthParameters")
    if oidc.get("signingAlgorithms") == []:
        yield f"{path}.signingAlgorithms: must not be empty; leave it out for all asymmetric algorithms"
    yield from _allow_list_errors(oidc, path)
    for index, url in enumerate(oidc.get("postLogoutURLs") or ()):
        if urlsplit_or_none(url) is None:
            yield f"{path}.postLogoutURLs[{index}]: must be an https URL"


def _allow_list_errors(oidc: Object, path: str) -> Iterator[str]:
    for name in ("allowedGroups", "allowedDomains"):
        if oidc.get(name) == []:
            yield f"{path}.{name}: is empty, so no user could sign in; leave it out to allow all"
    for index, group in enumerate(oidc.get("allowedGroups") or ()):
        if not group:
            yield f"{path}.allowedGroups[{index}]: must be the name of a group"
    for index, domain in enumerate(oidc.get("allowedDomains") or ()):
        if not _DOMAIN.fullmatch(domain):
            yield f"{path}.allowedDomains[{index}]: must be a domain in lower case without @, such as example.com"


def _issuer_errors(url: str, path: str, allow_loopback: bool) -> Iterator[str]:
    parts = urlsplit_or_none(url)
    if parts is None:
        yield f"{path}: must be an https URL, such as https://login.example.com"
        return
    if parts.query or parts.fragment or "?" in url or "#" in url:
        yield f"{path}: must not have a query or a fragment"
    host = parts.hostname or ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        forms: tuple[Address, ...] = ()
    else:
        forms = all_forms(address)
    if any(is_no_host(each) or is_protected(each) for each in forms):
        yield f"{path}: {host} is not the address of a provider"
    elif not allow_loopback and (is_loopback(host) or host.endswith(".localhost")):
        advice = "name the provider by its own address, or set allowLoopback for a test"
        yield f"{path}: {host} is a loopback address; {advice}"


def urlsplit_or_none(url: str) -> SplitResult | None:
    """The parts of an absolute https URL without user information; None if it is not one."""
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        return None
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    is_valid = parts.scheme == "https" and parts.hostname and "@" not in parts.netloc and port != 0
    return parts if is_valid and url.startswith("https://") else None


def _scope_errors(scopes: list[str] | None, path: str) -> Iterator[str]:
    if scopes is None:
        return
    if "openid" not in scopes:
        yield f"{path}: must contain openid, or the provider sends no ID token"
    for index, scope in enumerate(scopes):
        if not _SCOPE.fullmatch(scope):
            yield f"{path}[{index}]: must be printable ASCII without spaces, quotes and backslashes"


def _claim_errors(claim: str | None, path: str) -> Iterator[str]:
    if claim is not None and (not claim or not claim.isprintable()):
        yield f"{path}: must be the name of a claim"


def _ca_errors(ca: str | None, path: str) -> Iterator[str]:
    if not ca:
        return
    try:
        if "PRIVATE KEY" in ca:
            yield f"{path}: contains a private key; remove it, and replace it where it is used"
        x509.load_pem_x509_certificates(ca.encode())
    except ValueError:
        yield f"{path}: must be certificates in PEM format"


def _parameter_errors(parameters: Object, path: str) -> Iterator[str]:
    for name, value in parameters.items():
        if not _PARAMETER.fullmatch(name):
            yield f"{path}[{name}]: is not a valid name of a parameter"
        elif name in RESERVED_PARAMETERS:
            yield f"{path}[{name}]: the server sets this parameter itself; remove it"
        if not value.isprintable():
            yield f"{path}[{name}]: must be one line of printable text"


def _rule_errors(rule: Object, path: str, connectors: set[str]) -> Iterator[str]:
    if rule["connector"] not in connectors:
        yield f"{path}.connector: there is no connector {rule['connector']} in auth.connectors"
    if not rule["value"]:
        yield f"{path}.value: must not be empty"
    yield from _claim_errors(rule.get("claim"), f"{path}.claim")
    if not rule.get("teams") and not rule.get("groups"):
        yield f"{path}: gives nothing; set teams or groups"
    for field in ("teams", "groups"):
        for index, name in enumerate(rule.get(field) or ()):
            if not name:
                yield f"{path}.{field}[{index}]: must be a name"
            elif field == "groups" and name.startswith(FORBIDDEN_GROUP_PREFIXES):
                yield f"{path}.groups[{index}]: {name} stands for one principal; name a team in teams instead"
