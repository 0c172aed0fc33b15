"""The settings of single sign-on in the Config, as dataclasses. `kinds/clusters/config_sign_on.py` validates them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fairlead.core.objects import Object, get_path
from fairlead.kinds.clusters.config import CONFIG, CONFIG_NAME, parse_settings
from fairlead.kinds.clusters.config_sign_on import ALWAYS_SUFFIX, SIGNING_ALGORITHMS
from fairlead.registry.informer import Derived, Informer
from fairlead.storage.view.view import View

DEFAULT_SCOPES = ("openid", "profile", "email", "offline_access")
DEFAULT_REFRESH_SECONDS = 600
DEFAULT_STALE_SECONDS = 3600
DEFAULT_SECRET_NAMESPACE = "service-system"
DEFAULT_SECRET_KEY = "clientSecret"


@dataclass(frozen=True, slots=True)
class SecretRef:
    namespace: str
    name: str
    key: str


@dataclass(frozen=True, slots=True)
class ClaimNames:
    """The claims that contain the user name, the display name, the email address and the groups."""

    username: str = "preferred_username"
    name: str = "name"
    email: str = "email"
    groups: str = "groups"


@dataclass(frozen=True, slots=True)
class AllowLists:
    """Which users of a provider can sign in. Empty lists allow all."""

    groups: frozenset[str] = frozenset()
    domains: frozenset[str] = frozenset()
    require_verified_email: bool = False
    allow_unmapped: bool = True


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """This server as a client of the provider."""

    id: str
    secret: SecretRef | None = None
    auth_method: str = ""
    scopes: tuple[str, ...] = DEFAULT_SCOPES
    prompt: str = ""
    extra_parameters: Mapping[str, str] = field(default_factory=dict)
    post_logout_urls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Connector:
    """One OpenID provider."""

    id: str
    display_name: str
    issuer: str
    client: ClientConfig
    claims: ClaimNames = ClaimNames()
    allowed: AllowLists = AllowLists()
    ca_pem: str = ""
    algorithms: tuple[str, ...] = SIGNING_ALGORITHMS
    allow_loopback: bool = False
    creates_users: bool = True
    always_suffix: bool = False
    """The names of new users always have a suffix."""
    refresh_seconds: int = DEFAULT_REFRESH_SECONDS
    stale_seconds: int = DEFAULT_STALE_SECONDS


@dataclass(frozen=True, slots=True)
class MappingRule:
    """Gives teams and groups to users of a connector who have this value in a claim. An empty claim is the groups."""

    id: str
    connector: str
    claim: str
    value: str
    teams: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SignOnConfig:
    """All connectors, and the rules by connector."""

    connectors: Mapping[str, Connector] = field(default_factory=dict)
    by_issuer: Mapping[str, Connector] = field(default_factory=dict)
    rules: Mapping[str, tuple[MappingRule, ...]] = field(default_factory=dict)

    def rules_for(self, connector: str) -> tuple[MappingRule, ...]:
        return self.rules.get(connector, ())

    def compared_claims(self, connector: str) -> frozenset[str]:
        """The claims besides the groups that rules for a connector compare."""
        return frozenset(rule.claim for rule in self.rules_for(connector) if rule.claim)


def read_sign_on(settings: Object) -> SignOnConfig:
    """The connectors and rules of valid settings."""
    sent = get_path(settings, "auth.groupMappings") or []
    groups_claims = {
        each["id"]: each["oidc"].get("groupsClaim") or ClaimNames().groups
        for each in get_path(settings, "auth.connectors") or []
    }
    rules: dict[str, list[MappingRule]] = {}
    for index, rule in enumerate(sent, start=1):
        claim = rule.get("claim") or ""
        read = MappingRule(
            id=rule.get("id") or f"rule-{index}",
            connector=rule["connector"],
            claim="" if claim == groups_claims.get(rule["connector"]) else claim,
            value=rule["value"],
            teams=tuple(rule.get("teams") or ()),
            groups=tuple(rule.get("groups") or ()),
        )
        rules.setdefault(read.connector, []).append(read)
    connectors = {
        each["id"]: _read_connector(each, each["id"] in rules) for each in get_path(settings, "auth.connectors") or []
    }
    by_issuer = {each.issuer: each for each in connectors.values()}
    return SignOnConfig(connectors, by_issuer, {id: tuple(each) for id, each in rules.items()})


def _read_connector(connector: Object, has_rules: bool) -> Connector:
    oidc, defaults = connector["oidc"], ClaimNames()
    claims = ClaimNames(
        oidc.get("usernameClaim") or defaults.username,
        oidc.get("nameClaim") or defaults.name,
        oidc.get("emailClaim") or defaults.email,
        oidc.get("groupsClaim") or defaults.groups,
    )
    domains = frozenset(oidc.get("allowedDomains") or ())
    allowed = AllowLists(
        frozenset(oidc.get("allowedGroups") or ()),
        domains,
        oidc.get("requireVerifiedEmail", bool(domains)),
        oidc.get("allowUnmapped", not has_rules),
    )
    return Connector(
        id=connector["id"],
        display_name=connector.get("displayName") or connector["id"],
        issuer=oidc["issuerURL"],
        client=_read_client(oidc),
        claims=claims,
        allowed=allowed,
        ca_pem=oidc.get("ca") or "",
        algorithms=tuple(oidc.get("signingAlgorithms") or SIGNING_ALGORITHMS),
        allow_loopback=bool(oidc.get("allowLoopback")),
        creates_users=oidc.get("createUsers", True),
        always_suffix=oidc.get("userNameSuffix") == ALWAYS_SUFFIX,
        refresh_seconds=oidc.get("refreshIntervalSeconds", DEFAULT_REFRESH_SECONDS),
        stale_seconds=oidc.get("maxStaleSeconds", DEFAULT_STALE_SECONDS),
    )


def _read_client(oidc: Object) -> ClientConfig:
    reference = oidc.get("clientSecretRef")
    secret = reference and SecretRef(
        reference.get("namespace") or DEFAULT_SECRET_NAMESPACE,
        reference["name"],
        reference.get("key") or DEFAULT_SECRET_KEY,
    )
    return ClientConfig(
        id=oidc["clientId"],
        secret=secret or None,
        auth_method=oidc.get("clientAuthMethod") or "",
        scopes=tuple(oidc.get("scopes") or DEFAULT_SCOPES),
        prompt=oidc.get("prompt") or "",
        extra_parameters=oidc.get("extraAuthParameters") or {},
        post_logout_urls=tuple(oidc.get("postLogoutURLs") or ()),
    )


class SignOnSettings:
    """The settings in effect. A change of the Config takes effect at once.

    An invalid Config, as one from an earlier version may be, has no connectors: no one signs in by a setting that
    cannot be read.
    """

    def __init__(self, view: View, api_group: str) -> None:
        self._configs = Informer(view, api_group, CONFIG.plural)
        self._current = Derived(view, (self._configs.refresh,), self._read)

    @property
    def generation(self) -> Callable[[], int]:
        return self._configs.refresh

    def get(self) -> SignOnConfig:
        return self._current.get()

    def _read(self) -> SignOnConfig:
        config = self._configs.objects.get(("", CONFIG_NAME))
        settings, problems = parse_settings(get_path(config or {}, "spec.raw") or "")
        return SignOnConfig() if problems else read_sign_on(settings)
