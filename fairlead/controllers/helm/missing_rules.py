"""Which rules a credential lacks to create the Role of a chart, from the error of Helm. Pure.

An API server lets a user create a Role only with rules that the user has, too. Its message names the user and all
groups first and the missing rules last, so a message that is cut has lost what is needed to act.
"""

import re
from collections.abc import Sequence

PERMISSIONS_MISSING = "PermissionsMissing"
MAX_RULES = 20
_MAX_RULE_LENGTH = 200
_refusal = re.compile(
    r"(?P<kind>clusterroles|roles|clusterrolebindings|rolebindings)\.rbac\.authorization\.k8s\.io "
    r'"(?P<name>[^"]{1,253})" '
    r"is forbidden: user .{0,16000}? is attempting to grant RBAC permissions not currently held: (?P<rules>.*)"
)
_rule = re.compile(r"\{(?P<fields>[^{}]*)\}")
_field = re.compile(r"(APIGroups|Resources|ResourceNames|NonResourceURLs|Verbs):\[([^\[\]]*)\]")
_text = re.compile(r'"([^"]*)"')
_NOUNS = {
    "clusterroles": "ClusterRole",
    "roles": "Role",
    "clusterrolebindings": "ClusterRoleBinding",
    "rolebindings": "RoleBinding",
}


def describe_missing_rules(error: str) -> str:
    """What is missing and what to do, without the user and the groups; empty if the error is about something else.
    `error` is one line."""
    found = _refusal.search(error)
    if found is None:
        return ""
    rules = [_describe_rule(each["fields"]) for each in _rule.finditer(found["rules"])]
    listed = "; ".join(each for each in rules[:MAX_RULES] if each)
    more = f"; and {len(rules) - MAX_RULES} more" if len(rules) > MAX_RULES else ""
    title = f'{_NOUNS[found["kind"]]} "{found["name"]}"'
    return (
        f"the stored credential may not grant what the chart's {title} grants: {listed}{more}; `fairlead cluster role "
        "virtual-clusters | kubectl apply -f -` has the rules of known charts; grant others in the cluster yourself"
    )


def _describe_rule(text: str) -> str:
    """A rule as `pods/resize.apps [patch update]`."""
    fields: dict[str, Sequence[str]] = {name: _text.findall(values) for name, values in _field.findall(text)}
    groups = [each for each in fields.get("APIGroups", ()) if each]
    suffix = f".{groups[0]}" if groups else ""
    targets = [f"{each}{suffix}" for each in fields.get("Resources", ())] or list(fields.get("NonResourceURLs", ()))
    names = f" {' '.join(fields['ResourceNames'])}" if fields.get("ResourceNames") else ""
    described = f"{' '.join(targets)}{names} [{' '.join(fields.get('Verbs', ()))}]"
    return "".join(each for each in described if each.isprintable())[:_MAX_RULE_LENGTH]
