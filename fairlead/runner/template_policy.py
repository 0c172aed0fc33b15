"""What this runner honours of a template, whatever the server says. Pure.

The server gives permissions and placement to a runner only if administrators trust the template, and says so in
`status.templateTrust`. The runner checks that again, because the server may be older. Then its operator decides: only
permissions that were named with `--allow` are honoured, so that not even an administrator, or an attacker on the
server, gets more on this machine than its operator grants. The engine `kubernetes` checks contexts and
namespaces itself.
"""

from collections.abc import Mapping

from fairlead.core.objects import Object
from fairlead.core.workspaces import ALLOW, find_options_needing_trust
from fairlead.runner.credentials import is_secret
from fairlead.runner.desired import (
    DECIDED_OPTIONS,
    is_trusted,
    provider_name,
    read_limits,
    read_permissions,
    template_options,
)
from fairlead.runner.engines.contract import Limits, policy_violation
from fairlead.runner.registry import choose_engine
from fairlead.runner.services import RunnerServices

UNTRUSTED_LIMITS = Limits(memory_bytes=4 << 30, cpus=2.0, processes=4096)
"""The default limits of the engines: what a template that is not trusted can choose at most."""
ADVICE = "use a template that administrators trust (service.sh/trusted=true)"


def check_template(services: RunnerServices, workspace: Object, engine: str) -> None:
    """Raises EngineError. `engine` is the one that the workspace has, or that its template names. Called before secrets
    are requested, and before an `up` goes on that an earlier process has begun."""
    options = template_options(workspace)
    for name in sorted(options):
        if name in DECIDED_OPTIONS and is_secret(options[name]):
            raise policy_violation(
                f"the option {name} of the template's provider must not be secret; set its value there"
            )
    if not is_trusted(workspace):
        _check_untrusted(options, engine, next(iter(services.engines), ""))
    if refused := sorted(read_permissions(options) - services.allowed_permissions):
        flags = " ".join(f"--allow {each}" for each in refused)
        raise policy_violation(
            f"the template allows {', '.join(refused)}, which this runner does not honour; remove it from the option "
            f"{ALLOW} of the template's provider, or have the runner started with {flags}"
        )


def find_engine(services: RunnerServices, workspace: Object) -> str:
    """The engine for a new workspace; empty if there is none that the template may choose."""
    chosen = choose_engine(provider_name(workspace), services.engines)
    return chosen if is_trusted(workspace) or chosen == next(iter(services.engines), "") else ""


def _check_untrusted(options: Mapping[str, object], engine: str, default_engine: str) -> None:
    if engine and engine != default_engine:
        raise policy_violation(
            f"the template is not trusted, so it cannot choose the engine {engine}; leave out its provider, name "
            f"{default_engine}, or {ADVICE}"
        )
    if refused := find_options_needing_trust(options):
        raise policy_violation(f"the template is not trusted, so it cannot set {', '.join(refused)}; {ADVICE}")
    wanted = read_limits(options)
    for name, value, bound, shown in (
        ("memory", wanted.memory_bytes, UNTRUSTED_LIMITS.memory_bytes, "4Gi"),
        ("cpus", wanted.cpus, UNTRUSTED_LIMITS.cpus, "2"),
        ("processes", wanted.processes, UNTRUSTED_LIMITS.processes, "4096"),
    ):
        if value is not None and bound is not None and value > bound:
            raise policy_violation(
                f"the template is not trusted, so its option {name} can be at most {shown}; reduce it, or {ADVICE}"
            )
