"""Single sign-on with OpenID Connect: who a user of a provider is here, and how long that holds.

- `endpoints`: the endpoints for browsers and providers
- `service`: begins and finishes sign-ons, ends sessions for the provider
- `reasons`: why a sign-on is refused or a session ends, and the metrics of both
- `identity`: reads the claims of a provider, without trusting their types
- `users`: finds, creates and updates the user of an identity
- `encryption`: encrypts refresh tokens, and the state of a sign-on in a browser
- `pending`: sign-ons that have begun, in a cookie
- `consumed`: values that can be used once, such as the state of a sign-on
- `provider_access`: the requests to a provider
- `sessions`: the access keys of sessions, with their tokens
- `refresh`: checks sessions with their provider, regularly
- `review`: the handler of SignOnReview

`signin/oidc` verifies tokens, `authn/sign_on_policy.py` decides who may sign in, also on each request.
"""
