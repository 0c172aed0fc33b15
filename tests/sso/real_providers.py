"""Connectors for the two real providers, `corp` and `partner`, and a user with the same address at both."""

from tests.sso.deployments import Deployment
from tests.sso.providers.processes import MockProvider, NodeProvider

CORP, PARTNER = "corp", "partner"
INTERVAL = 5
SCOPES = ["openid", "profile", "email", "groups", "offline_access"]
EMAIL = "ada@corp.example"
RULES = [
    {"id": "operators", "connector": CORP, "value": "operators", "groups": ["ops"]},
    {"id": "administrators", "connector": CORP, "value": "administrators", "groups": ["system:masters"]},
]


def add_user(node_provider: NodeProvider, mock_provider: MockProvider, deployment: Deployment) -> None:
    node_provider.set_clients(deployment.client_of(CORP))
    claims = {"email": EMAIL, "email_verified": True, "name": "Ada Lovelace", "preferred_username": "ada"}
    node_provider.set_account("ada", **claims, groups=["developers"])
    mock_provider.set_account("ada", **claims, groups=["developers"])


def configure(deployment: Deployment, node_provider: NodeProvider, mock_provider: MockProvider) -> None:
    corp = deployment.connector(
        CORP,
        node_provider.issuer,
        scopes=SCOPES,
        prompt="consent",
        refreshIntervalSeconds=INTERVAL,
        allowUnmapped=True,
    )
    partner = deployment.connector(
        PARTNER, mock_provider.issuer, scopes=["openid", "profile", "email"], refreshIntervalSeconds=INTERVAL
    )
    deployment.configure(corp, partner, rules=RULES)
