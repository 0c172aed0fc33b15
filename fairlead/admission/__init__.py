"""Admission: checks a write against other objects before it is committed, and fills in defaults.

Each feature adds its rules to the phases of `Phase` (`fairlead/features/`). What can be checked on the object alone is
validation (`registry/validate.py`), not admission.

    namespaces, projects, allow_lists, quotas   where objects may be created, what they may use, how many there may be
    instances, instance_owners, parameters      spaces, virtual clusters, workspaces and deployed apps
    sleep                                       that an instance is asleep, and policies that make no sense
    templates, workspace_templates              templates that administrators trust, and what others may not decide
    objects_in_use                              templates, presets and Apps that instances use are not deleted
    restricted                                  the permission to create instances that not all members may create
    port_shares                                 who else may open a port of a workspace in a browser
    presets                                     workspaces from presets, and what presets refer to
    prebuilds                                   workspaces that only build images for others
    apps                                        deployed apps: who may deploy which App where; in templates
    runners                                     who may have the server connect to a runner, or deploy one; its deletion
    cluster_exports                             clusters to which the server writes keys for the gateways of others
    users, access_keys, access_key_limits       principals and their credentials
    sign_in_settings                            who may change what lets users and workloads in
    escalation                                  privilege escalation prevention: RBAC, owners, access entries, members
    owners_and_finalizers                       owner references and finalizers
    secret_references                           references to secrets in workspaces, and to kubeconfigs in Secrets
    chart_secrets                               references to secrets in the charts of Apps and templates
    references                                  references that have no effect, such as typos
    protected_fields                            labels, annotations, status and objects that only the server may write
"""

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from fairlead.core.errors import ADMISSION, ApiError, Forbidden, Invalid, Problem
from fairlead.core.objects import Object, get_path, name_of
from fairlead.registry.kind import Change, Kind
from fairlead.registry.registry import Registry

Rule = Callable[[Change, Registry], Awaitable[None]]
"""Raises to reject the write. May change the new object and add writes and preconditions to the commit."""


class Phase(Enum):
    """When a rule runs. Within a phase, the order is that of the features, then that in the feature."""

    PLACE = "the namespace and the project accept writes"
    PROTECT = "what only the server or an administrator may write, before any rule sets such fields itself"
    COMPLETE = "what the server sets or removes in the object, such as keys and owners, and who may ask for it"
    AUTHORIZE = "whether the requester may grant, refer to or use what the complete object names"
    CHECK = "the complete object against its owners, its project and its template"
    FINISH = "what depends on the results of all other rules, such as quotas, which count for the owner"


RuleFilter = Callable[[Kind, str], bool]
"""Whether a rule applies to a verb (create, update, delete) on a kind. Must be deterministic: the result is cached."""


@dataclass(frozen=True, slots=True)
class FilteredRule:
    """A rule that applies only to some kinds and verbs."""

    applies: RuleFilter
    rule: Rule

    async def __call__(self, change: Change, registry: Registry) -> None:
        if self.applies(change.kind, change.verb):
            await self.rule(change, registry)


def applies_to(rule_filter: RuleFilter) -> Callable[[Rule], Rule]:
    """Decorator that restricts a rule to the kinds and verbs accepted by the filter."""

    def limited(rule: Rule) -> Rule:
        return FilteredRule(rule_filter, rule)

    return limited


def is_resource(kind: Kind, group: str, *plurals: str) -> bool:
    return kind.group == group and kind.plural in plurals


def has_valid_types(obj: Object, types: Mapping[str, type]) -> bool:
    """Whether the fields that are set have these types. Schema validation, which runs later, rejects the others."""
    found = ((get_path(obj, path), expected) for path, expected in types.items())
    return all(value is None or isinstance(value, expected) for value, expected in found)


def forbidden(change: Change, why: str) -> Forbidden:
    """The error for a write that its author may not do."""
    return Forbidden.of(change.kind.plural, change.kind.group, name_of(change.obj), why)


def invalid(change: Change, *problems: Problem) -> Invalid:
    """The error for a write of an object that no one may write so."""
    return Invalid.of(change.kind.name, change.kind.group, name_of(change.obj), problems)


def rule_name(rule: Rule) -> str:
    """The name of a rule, from its function, factory or class: `enforce_allow_lists` is "enforce-allow-lists"."""
    name = str(getattr(rule, "__qualname__", type(rule).__name__)).partition(".")[0]
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().replace("_", "-")


class AdmissionChain:
    """Runs the admission rules in order.

    Which rules apply is computed once per kind and verb, so rules that do not apply cost a write nothing. The registry
    itself needs the chain, and features need the registry to build their rules. So both are set after construction
    with `bind`.
    """

    def __init__(self) -> None:
        self._rules: Sequence[Rule] = ()
        self._rules_by_kind: dict[tuple[str, str, str], Sequence[Rule]] = {}
        self._registry: Registry | None = None

    def bind(self, registry: Registry, rules: Sequence[Rule]) -> None:
        self._registry = registry
        self._rules = rules

    async def __call__(self, change: Change) -> None:
        if self._registry is None:
            raise RuntimeError("admission was called before bind")
        key = change.kind.group, change.kind.plural, change.verb
        chosen = self._rules_by_kind.get(key)
        if chosen is None:
            chosen = self._rules_by_kind[key] = tuple(self._select_rules(change.kind, change.verb))
        try:
            for rule in chosen:
                await rule(change, self._registry)
        except ApiError as error:
            error.refused_by = error.refused_by or f"{ADMISSION}/{rule_name(rule)}"
            raise
        except Exception:
            # Rules see objects before the schema rejects them, and may fail on a value of the wrong type.
            if change.problems:
                kind = change.kind
                raise Invalid.of(kind.name, kind.stored_resource[0], name_of(change.obj), change.problems) from None
            raise

    def _select_rules(self, kind: Kind, verb: str) -> Iterator[Rule]:
        for rule in self._rules:
            if not isinstance(rule, FilteredRule):
                yield rule
            elif rule.applies(kind, verb):
                yield rule.rule
