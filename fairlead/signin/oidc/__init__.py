"""OpenID providers, as a relying party sees them: fetching their documents, and verifying their tokens.

issuer     `Issuer`: the address of a provider, and the algorithms with which it may sign
errors     why a token or a provider was rejected
fetch      `Fetcher`: bounded HTTPS requests to allowed addresses
discovery  `ProviderClient`: metadata of issuers, their keys, form posts and userinfo, cached. One per process
tokens     `verify_id_token`, `verify_logout_token` and `verify_subject_token`

All functions that verify a token take a `Provider`, an issuer together with the client that fetches its keys:
`Provider(client, Issuer(url))`. They raise TokenRejected if the token is not acceptable, and ProviderError if the
provider's keys could not be fetched; both have a `reason`. Their messages contain nothing of the token or the response.

Requests are sent by httpx, which is a dependency already. Each one uses a new connection: connections are pooled by
address, not by the host name that their certificate was verified for.
"""
