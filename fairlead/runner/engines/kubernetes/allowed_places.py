"""In which contexts and namespaces workspaces may be, as the operator of the runner has listed them.

The credential of the runner often reaches more of a cluster than workspaces should. So a template chooses among what is
listed, and without a list there is one place: the namespace of the current context. Namespaces of Kubernetes itself are
never a place for workspaces.
"""

from dataclasses import dataclass

from fairlead.core.validators import parse_size
from fairlead.core.workspaces import find_options_needing_trust
from fairlead.runner.engines.contract import EngineError, Reason, WorkspaceSpec, policy_violation
from fairlead.runner.engines.kubernetes.contexts import Contexts
from fairlead.runner.engines.kubernetes.settings import Options, Settings

SYSTEM_PREFIX = "kube-"
TRUST_ADVICE = "use a template that administrators trust (service.sh/trusted=true)"


def is_system_namespace(namespace: str) -> bool:
    """Kubernetes reserves the prefix."""
    return namespace.startswith(SYSTEM_PREFIX)


@dataclass(frozen=True, slots=True)
class AllowedPlaces:
    settings: Settings
    contexts: Contexts

    def choose(self, options: Options) -> tuple[str, str]:
        """The context and namespace for a workspace. Raises EngineError."""
        if options.cluster:
            self._check_context(options.cluster)
        context = self.contexts.resolve_name(options.cluster)
        namespace = options.namespace or self.contexts.find_namespace(context)
        if not namespace:
            message = f"neither the template nor the context {context!r} of the runner's kubeconfig names a namespace"
            raise EngineError(Reason.CONFIGURATION_INVALID, f"{message}; set the option namespace")
        self.check(context, namespace)
        return context, namespace

    def check(self, context: str, namespace: str) -> None:
        """Raises EngineError if workspaces must not be there, or not any more."""
        self._check_context(context)
        if is_system_namespace(namespace):
            raise policy_violation(
                f"namespace {namespace} belongs to Kubernetes itself; choose another option namespace"
            )
        if namespace != self.contexts.find_namespace(context) and namespace not in self.settings.namespaces:
            raise policy_violation(
                f"the operator of the runner has not listed namespace {namespace}; leave out the option namespace of "
                f"the template's provider, or have the runner started with --kube-namespace {namespace}"
            )

    def _check_context(self, context: str) -> None:
        if context not in self.settings.contexts and context != self.contexts.find_current():
            raise policy_violation(
                f"the operator of the runner has not listed the context {context!r}; leave out the option cluster of "
                f"the template's provider, or have the runner started with --kube-context {context}"
            )


def check_untrusted(spec: WorkspaceSpec, options: Options) -> None:
    """Raises EngineError if a template chooses what only a trusted one may."""
    if spec.is_trusted:
        return
    if refused := find_options_needing_trust(spec.options):
        raise policy_violation(f"the template is not trusted, so it cannot set {', '.join(refused)}; {TRUST_ADVICE}")
    defaults = Options()
    for name, value, bound in (
        ("storage", options.storage, defaults.storage),
        ("ephemeralStorage", options.ephemeral_storage, defaults.ephemeral_storage),
    ):
        size = parse_size(value)  # None: it is a size, as the option was parsed, but one beyond terabytes
        if size is None or size > (parse_size(bound) or 0):
            message = f"the template is not trusted, so its option {name} can be at most {bound}"
            raise policy_violation(f"{message}; reduce it, or {TRUST_ADVICE}")


def choose_clone_image(spec: WorkspaceSpec, options: Options, settings: Settings) -> str:
    """The image that clones gets the credentials of the repository, so only trusted templates choose it. Raises
    EngineError."""
    chosen = options.clone_image if spec.is_trusted else ""
    image = chosen or settings.clone_image or (options.image if spec.is_trusted else "")
    if image:
        return image
    if not spec.is_trusted:
        raise policy_violation(
            "the template is not trusted, so its image does not clone repositories; have the runner started with "
            f"--clone-image, or {TRUST_ADVICE}"
        )
    message = (
        "the template names no image that can clone: set the option cloneImage to one with git and a shell, or image"
    )
    raise EngineError(Reason.CONFIGURATION_INVALID, message)
