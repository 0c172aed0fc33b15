"""Content types of patches, as Kubernetes calls them."""

JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
