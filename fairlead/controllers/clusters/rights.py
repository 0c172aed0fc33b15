"""Permissions in a cluster that the stored credential needs, and how the cluster is asked for them."""

from dataclasses import dataclass

from fairlead.core.objects import Object

REVIEWS_PATH = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


@dataclass(frozen=True, slots=True)
class Right:
    """A permission; without names, for all objects of the resource."""

    verb: str
    resource: str
    group: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        resource = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        return f"{resource} ({self.group})" if self.group else resource

    def review(self) -> Object:
        """The SelfSubjectAccessReview that tells whether the credential has it."""
        fields = {each: getattr(self, each) for each in self.__slots__ if getattr(self, each)}
        return {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": fields},
        }
