"""Kinds of rbac.authorization.k8s.io, and access reviews.

- `roles`, `bindings`: Role, ClusterRole, RoleBinding and ClusterRoleBinding
- `access_reviews`: SubjectAccessReview and its variants
"""
