"""Single sign-on with OpenID Connect: who a user of a provider is here, and how long that holds.

- `connectors`: the settings of the Config as dataclasses
- `reasons`: why a sign-on is refused, or a session ends
- `identity`: reads the claims of a provider, without trusting their types
- `rules`: evaluates allow-lists and group mappings
- `policy`: the same for stored users and sessions, on each authentication
- `user_names`, `users`: finds, creates and updates the user of an identity
- `reserved_names`: names that objects refer to, though no user has them
- `encryption`: encrypts refresh tokens, and the state of a sign-on in a browser
- `consumed`: values that can be used once, such as the state of a sign-on
- `pending`: sign-ons that have begun, in a cookie
- `return_paths`: where a browser goes after a sign-on
- `provider_access`: the requests to a provider
- `sessions`: the access keys of sessions, with their tokens
- `refresh`: checks sessions with their provider
- `counters`: for the metrics
- `throttle`: delays networks with many failures
- `service`: begins and finishes sign-ons, ends sessions for the provider

`authn/oidc` verifies tokens.
"""
