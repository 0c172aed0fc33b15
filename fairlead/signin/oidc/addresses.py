"""Which URLs and addresses of OpenID providers may be fetched.

Providers are chosen by administrators and often have private addresses, so those are allowed. Link-local addresses and
the metadata services of clouds never are: no provider is there, and their responses contain credentials. Loopback
addresses are allowed only for issuers with `allow_loopback`.
"""

from ipaddress import ip_address

from fairlead.core.addresses import all_forms, is_no_host, is_protected
from fairlead.core.pinned_https import Target, parse_https_url
from fairlead.signin.oidc.reasons import ProviderError, Reason


def parse_url(url: object) -> Target:
    """Splits an https URL. Raises ProviderError for anything else: other schemes, user names, fragments, spaces."""
    target = parse_https_url(url)
    if target is None:
        message = "the URL must be an https URL without user name, fragment and white space"
        raise ProviderError(Reason.ISSUER_URL, message)
    return target


def check_issuer_url(url: str) -> None:
    """Raises ProviderError unless the URL can be that of an issuer: an https URL without query and fragment."""
    parse_url(url)
    if "?" in url:
        raise ProviderError(Reason.ISSUER_URL, "the issuer URL must not have a query")


def check_address(text: str, *, allow_loopback: bool) -> None:
    """Raises ProviderError if the address must not be fetched."""
    for address in all_forms(ip_address(text)):
        if is_no_host(address) or is_protected(address):
            raise ProviderError(Reason.ADDRESS_BLOCKED, "the provider's address is link-local or not that of a host")
        if address.is_loopback and not allow_loopback:
            raise ProviderError(Reason.ADDRESS_BLOCKED, "the provider's address is a loopback address")
