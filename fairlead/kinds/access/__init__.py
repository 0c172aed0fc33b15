"""Kinds for users and credentials.

- `users`, `principal_fields`: User and Team, and the fields that they share
- `access_key`, `scope`: OwnedAccessKey, keys counted per owner, and the scope of keys and tokens
- `direct_token`: DirectClusterEndpointToken and TokenKeyRotation
- `components`: runners and cluster agents as authenticating components
- `whoami`: Self, SelfSubjectReview and TokenReview
- `audit_event`: AuditEvent
- `sign_on_review`: SignOnReview
"""
