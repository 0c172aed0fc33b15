"""An OpenID provider, and the algorithms with which it may sign."""

from dataclasses import dataclass

RSA_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
ASYMMETRIC_ALGORITHMS = (*RSA_ALGORITHMS, "ES256", "ES384", "ES512", "EdDSA")


@dataclass(frozen=True, slots=True)
class Issuer:
    """An OpenID provider. `url` is compared byte for byte with the metadata and with tokens.

    `ca_pem` replaces the certificate authorities of the system. `allow_loopback` is for providers on this machine.
    """

    url: str
    ca_pem: str = ""
    allow_loopback: bool = False
    algorithms: tuple[str, ...] = ASYMMETRIC_ALGORITHMS
