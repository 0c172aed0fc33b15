"""TokenReview of a fake cluster, with the checks and messages of kube-apiserver, and tokens of its service accounts.

A token is authenticated if it is signed by this cluster, not expired, for one of the requested audiences, and if its
service account and its pod still exist with the uids in the token. Failures are status 201 with an `error`.
"""

import json
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

from tests.fake_cluster.exchange import CannedResponse, RecordedRequest, build_json_response, build_status_response

PATH = "/apis/authentication.k8s.io/v1/tokenreviews"
API_AUDIENCE = "https://kubernetes.default.svc.cluster.local"


@dataclass
class TokenReviews:
    """A responder for a FakeCluster. `accounts` and `pods` are the uids of what exists, by namespace and name."""

    issuer: str = API_AUDIENCE
    accounts: dict[tuple[str, str], str] = field(default_factory=dict)
    pods: dict[tuple[str, str], str] = field(default_factory=dict)
    is_allowed: bool = True
    """Whether the stored credential may create TokenReviews."""
    checks_audiences: bool = True
    """False for an API server whose authenticator does not know audiences."""
    now: Callable[[], float] = time.time
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    def add_account(self, namespace: str, name: str) -> str:
        """Creates the account, or creates it again with a new uid."""
        self.accounts[namespace, name] = uid = str(uuid.uuid4())
        return uid

    def issue(self, namespace: str, name: str, *audiences: str, pod: str = "", seconds: int = 600) -> str:
        """A bound token, as TokenRequest issues it."""
        now = int(self.now())
        bound: dict[str, Any] = {
            "namespace": namespace,
            "serviceaccount": {"name": name, "uid": self.accounts[namespace, name]},
        }
        if pod:
            self.pods.setdefault((namespace, pod), str(uuid.uuid4()))
            bound["pod"] = {"name": pod, "uid": self.pods[namespace, pod]}
        claims = {
            "aud": list(audiences or (API_AUDIENCE,)),
            "exp": now + seconds,
            "iat": now,
            "nbf": now,
            "iss": self.issuer,
            "jti": str(uuid.uuid4()),
            "kubernetes.io": bound,
            "sub": f"system:serviceaccount:{namespace}:{name}",
        }
        return jwt.encode(claims, self.key, "ES256", headers={"kid": "fake-cluster", "typ": None})

    def __call__(self, request: RecordedRequest) -> CannedResponse | None:
        if request.path != PATH or request.method != "POST":
            return None
        if not self.is_allowed:
            message = (
                'tokenreviews.authentication.k8s.io is forbidden: User "fairlead" cannot create resource '
                '"tokenreviews" in API group "authentication.k8s.io" at the cluster scope'
            )
            return build_status_response(403, "Forbidden", message)
        review = json.loads(request.body)
        token = review["spec"].get("token") or ""
        if not token:
            message = "token is required for TokenReview in authentication"
            return build_status_response(400, "BadRequest", message)
        return build_json_response(
            {**review, "metadata": {}, "status": self.review(token, review["spec"].get("audiences") or [])}, 201
        )

    def review(self, token: str, requested: Sequence[str] = ()) -> dict[str, Any]:
        wanted = list(requested) or [API_AUDIENCE]
        try:
            options: Any = dict.fromkeys(("verify_aud", "verify_exp", "verify_iat", "verify_nbf"), False)
            claims = jwt.decode(token, self.key.public_key(), ["ES256"], options=options, issuer=self.issuer)
        except jwt.PyJWTError:
            return {"user": {}, "error": "invalid bearer token"}
        if claims["exp"] <= self.now():
            return _failure("service account token has expired")
        common = [each for each in wanted if each in claims["aud"]]
        if not common and self.checks_audiences:
            return _failure(f"token audiences {claims['aud']} is invalid for the target audiences {wanted}")
        bound = claims["kubernetes.io"]
        namespace, account, pod = bound["namespace"], bound["serviceaccount"], bound.get("pod")
        if self.accounts.get((namespace, account["name"])) != account["uid"]:
            return _failure("service account token has been invalidated")
        if pod is not None and self.pods.get((namespace, pod["name"])) != pod["uid"]:
            return _failure("service account token has been invalidated")
        user = {
            "username": claims["sub"],
            "uid": account["uid"],
            "groups": ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"],
            "extra": {"authentication.kubernetes.io/credential-id": [f"JTI={claims['jti']}"]},
        }
        if pod is not None:
            user["extra"] |= {
                "authentication.kubernetes.io/pod-name": [pod["name"]],
                "authentication.kubernetes.io/pod-uid": [pod["uid"]],
            }
        found = {"authenticated": True, "user": user}
        return {**found, "audiences": common} if self.checks_audiences else found


def _failure(message: str) -> dict[str, Any]:
    return {"user": {}, "error": f"[invalid bearer token, {message}]"}
