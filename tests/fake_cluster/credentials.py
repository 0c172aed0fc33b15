"""The API of a cluster that issues credentials: tokens of service accounts (TokenRequest), client certificates
(CertificateSigningRequest), and who a request is from.

An `IssuingCluster` authenticates each request by its bearer token or client certificate, as a kube-apiserver does.
`InProcessUpstream` calls it without a socket, for tests on virtual time.
"""

import asyncio
import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from fairlead.upstream.access import ClusterEndpoint, Request
from fairlead.upstream.errors import UpstreamError
from tests.fake_cluster.certificates import PemPair, get_authority
from tests.fake_cluster.exchange import (
    CannedResponse,
    RecordedRequest,
    build_json_response,
    build_status_response,
)
from tests.fake_cluster.server import ACCESS_REVIEWS_PATH, VERSION
from tests.fake_cluster.token_reviews import TokenReviews

SELF_REVIEWS_PATH = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
TOKEN_REQUESTS = re.compile(r"/api/v1/namespaces/([^/]+)/serviceaccounts/([^/]+)/token")
CSR_PATH = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
CERTIFICATE_REQUESTS = re.compile(CSR_PATH)
SIGNER = "kubernetes.io/kube-apiserver-client"
MIN_SECONDS = 600
CERTIFICATE_HEADER = "test-client-certificate"
"""In base64: what the TLS connection would have proven."""


@dataclass
class IssuingCluster:
    """`tokens` knows the accounts. The other fields are what tests change."""

    tokens: TokenReviews
    max_seconds: int = 2**32
    """No token lives longer, as with --service-account-max-token-expiration."""
    may_create_tokens: bool = True
    """Whether accounts may create tokens for themselves."""
    denied: tuple[tuple[str, str], ...] = ()
    """What users may not do with certificates: verb and resource, such as `approve` and `signers`."""
    signs: bool = True
    """False if the controller manager does not run."""
    edit_certificate: Callable[[str], str] = lambda certificate: certificate
    """What becomes of a certificate before it is sent."""
    signing_requests: dict[str, dict[str, Any]] = field(default_factory=dict)
    serves_self_reviews: bool = True
    """False for a cluster before Kubernetes 1.28."""
    edit_token: Callable[[str], str] = lambda token: token
    """What becomes of a token before it is sent."""
    error: UpstreamError | None = None
    """What happens instead of a response."""
    before_response: Callable[[RecordedRequest], None] = lambda request: None
    requests: list[RecordedRequest] = field(default_factory=list)

    def count(self, pattern: "re.Pattern[str]" = TOKEN_REQUESTS) -> int:
        """How many requests there were at paths like this."""
        return sum(pattern.fullmatch(each.path) is not None for each in self.requests)

    def __call__(self, request: RecordedRequest) -> CannedResponse:
        self.requests.append(request)
        user = self._authenticate(request)
        if not user:
            return build_status_response(401, "Unauthorized", "Unauthorized")
        response = self._respond(request, user)
        self.before_response(request)
        return response

    def issue_certificate(self, name: str, seconds: int, *groups: str) -> PemPair:
        """A client certificate of this cluster with its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
        attributes += [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in groups]
        certificate = self._sign(x509.Name(attributes), key.public_key(), seconds)
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return PemPair(certificate, private.decode())

    def _sign(self, subject: x509.Name, key: Any, seconds: int) -> str:
        authority = get_authority()
        now = self._now()
        builder = x509.CertificateBuilder().subject_name(subject).public_key(key).serial_number(7)
        builder = builder.issuer_name(authority.certificate.subject)
        builder = builder.not_valid_before(now - timedelta(minutes=5)).not_valid_after(now + timedelta(seconds=seconds))
        return builder.sign(authority.key, SHA256()).public_bytes(Encoding.PEM).decode()

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self.tokens.now(), UTC)

    def _authenticate(self, request: RecordedRequest) -> str:
        if encoded := request.header(CERTIFICATE_HEADER):
            return self._verify_certificate(b64decode(encoded))
        token = request.header("authorization").removeprefix("Bearer ")
        return str(self.tokens.review(token)["user"].get("username") or "")

    def _verify_certificate(self, pem: bytes) -> str:
        certificate = x509.load_pem_x509_certificate(pem)
        try:
            certificate.verify_directly_issued_by(get_authority().certificate)
        except InvalidSignature:
            return ""
        is_valid = certificate.not_valid_before_utc <= self._now() < certificate.not_valid_after_utc
        names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        return str(names[0].value) if is_valid else ""

    def _respond(self, request: RecordedRequest, user: str) -> CannedResponse:
        body = json.loads(request.body) if request.body else {}
        if match := TOKEN_REQUESTS.fullmatch(request.path):
            return self._issue_token(match[1], match[2], user, body)
        if request.path.startswith(CSR_PATH):
            return self._handle_certificate_request(request, user, body)
        if request.path == SELF_REVIEWS_PATH and self.serves_self_reviews:
            return build_json_response({**body, "metadata": {}, "status": {"userInfo": {"username": user}}}, 201)
        if request.path == ACCESS_REVIEWS_PATH:
            return build_json_response({**body, "metadata": {}, "status": {"allowed": self._allows(body, user)}}, 201)
        if request.path == "/version":
            return build_json_response(VERSION)
        return build_status_response(404, "NotFound", "the server could not find the requested resource")

    def _allows(self, review: dict[str, Any], user: str) -> bool:
        wanted = review["spec"]["resourceAttributes"]
        if wanted.get("group") == "certificates.k8s.io":
            return (wanted["verb"], wanted["resource"]) not in self.denied
        if (wanted["resource"], wanted.get("subresource")) != ("serviceaccounts", "token"):
            return False
        own = f"system:serviceaccount:{wanted['namespace']}:{wanted['name']}"
        return self.may_create_tokens and wanted["verb"] == "create" and own == user

    def _issue_token(self, namespace: str, name: str, user: str, body: dict[str, Any]) -> CannedResponse:
        if not self.may_create_tokens or user != f"system:serviceaccount:{namespace}:{name}":
            message = (
                f'serviceaccounts "{name}" is forbidden: User "{user}" cannot create resource "serviceaccounts/token" '
                f'in API group "" in the namespace "{namespace}"'
            )
            return build_status_response(403, "Forbidden", message)
        if (namespace, name) not in self.tokens.accounts:
            return build_status_response(404, "NotFound", f'serviceaccounts "{name}" not found')
        if (body.get("apiVersion"), body.get("kind")) != ("authentication.k8s.io/v1", "TokenRequest"):
            return build_status_response(400, "BadRequest", "the body is not a TokenRequest")
        seconds = body["spec"].get("expirationSeconds", 3600)
        if seconds < MIN_SECONDS:
            message = (
                'TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: '
                f"{seconds}: may not specify a duration less than 10 minutes"
            )
            return build_status_response(422, "Invalid", message)
        bound = body["spec"].get("boundObjectRef") or {}
        pod = str(bound.get("name") or "")
        if pod and self.tokens.pods.get((namespace, pod)) != bound["uid"]:
            return build_status_response(404, "NotFound", f'pods "{pod}" not found')
        token = self.tokens.issue(namespace, name, pod=pod, seconds=min(seconds, self.max_seconds))
        return build_json_response({**body, "status": {"token": self.edit_token(token)}}, 201)

    def _handle_certificate_request(self, request: RecordedRequest, user: str, body: dict[str, Any]) -> CannedResponse:
        if request.method == "POST":
            return self._create_certificate_request(user, body)
        name, _, subresource = request.path.removeprefix(f"{CSR_PATH}/").partition("/")
        found = self.signing_requests.get(name)
        if found is None:
            return build_status_response(404, "NotFound", f'certificatesigningrequests "{name}" not found')
        if request.method == "PUT" and subresource == "approval":
            if ("approve", "signers") in self.denied:
                message = f'user not permitted to approve requests with signerName "{SIGNER}"'
                return build_status_response(403, "Forbidden", message)
            if body["metadata"].get("resourceVersion") != found["metadata"]["resourceVersion"]:
                return build_status_response(409, "Conflict", "the object has been modified")
            found["status"] = {"conditions": body["status"]["conditions"]}
            return build_json_response(found)
        self._sign_approved(found)
        return build_json_response(found)

    def _create_certificate_request(self, user: str, body: dict[str, Any]) -> CannedResponse:
        if ("create", "certificatesigningrequests") in self.denied:
            message = f'certificatesigningrequests.certificates.k8s.io is forbidden: User "{user}" cannot create'
            return build_status_response(403, "Forbidden", message)
        request = x509.load_pem_x509_csr(b64decode(body["spec"]["request"]))
        groups = [each.value for each in request.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
        if "system:masters" in groups:
            message = f"use of {SIGNER} signer with system:masters group is not allowed"
            return build_status_response(403, "Forbidden", message)
        if body["spec"]["signerName"] != SIGNER or body["spec"]["usages"] != ["client auth"]:
            return build_status_response(422, "Invalid", "spec.usages: Invalid value")
        name = f"{body['metadata']['generateName']}{len(self.signing_requests):05}"
        meta = {"name": name, "resourceVersion": str(len(self.requests))}
        self.signing_requests[name] = {**body, "metadata": meta, "status": {}}
        return build_json_response(self.signing_requests[name], 201)

    def _sign_approved(self, found: dict[str, Any]) -> None:
        """As the controller manager does, some time after the approval."""
        status = found["status"]
        if not self.signs or not any(each["type"] == "Approved" for each in status.get("conditions") or ()):
            return
        request = x509.load_pem_x509_csr(b64decode(found["spec"]["request"]))
        seconds = min(found["spec"]["expirationSeconds"], self.max_seconds)
        certificate = self._sign(request.subject, request.public_key(), seconds)
        status["certificate"] = b64encode(self.edit_certificate(certificate).encode()).decode()


class InProcessResponse:
    def __init__(self, response: CannedResponse) -> None:
        self.status = response.status
        self._body = response.body

    async def read(self, limit: int) -> bytes:
        return self._body

    async def close(self) -> None:
        pass


class InProcessUpstream:
    """An Upstream to an IssuingCluster, with the credential of an endpoint."""

    def __init__(self, cluster: IssuingCluster, endpoint: ClusterEndpoint) -> None:
        self._cluster = cluster
        self._endpoint = endpoint

    async def send(self, request: Request, *, seconds: float | None = None) -> InProcessResponse:
        await asyncio.sleep(0.1)
        if self._cluster.error is not None:
            raise self._cluster.error
        assert isinstance(request.body, bytes)
        certificate = b64encode(self._endpoint.client_certificate.encode()).decode()
        credential = (
            (CERTIFICATE_HEADER, certificate) if certificate else ("authorization", f"Bearer {self._endpoint.token}")
        )
        headers = (*request.headers, credential)
        recorded = RecordedRequest(request.method, request.target, tuple(headers), request.body, 1)
        return InProcessResponse(self._cluster(recorded))

    async def close(self) -> None:
        pass
