"""Single sign-on with OpenID Connect: who a user of a provider is here, and how long that holds.

- `endpoints`: the endpoints for browsers and providers
- `reasons`: why a session ends, and the error of a refused sign-on
- `identity`: reads the claims of a provider, without trusting their types
- `review`: the handler of SignOnReview
- `user_names`, `users`: finds, creates and updates the user of an identity
- `reserved_names`: names that objects refer to, though no user has them
- `encryption`: encrypts refresh tokens, and the state of a sign-on in a browser
- `consumed`: values that can be used once, such as the state of a sign-on; `consumed_controller` deletes them
- `pending`: sign-ons that have begun, in a cookie
- `return_paths`: where a browser goes after a sign-on
- `provider_access`: the requests to a provider
- `sessions`: the access keys of sessions, with their tokens
- `refresh`: checks sessions with their provider; `session_controller` does so regularly
- `counters`: for the metrics
- `throttle`: delays networks with many failures
- `service`: begins and finishes sign-ons, ends sessions for the provider

`signin/oidc` verifies tokens, `authn/sign_on_policy.py` decides who may sign in, also on each request.
"""
