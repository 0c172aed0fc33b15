"""SpaceTemplate, VirtualClusterTemplate and DevPodWorkspaceTemplate, and the trust level of a template.

The definitions (`*_TEMPLATE_SPEC`) are also part of instances: inline in `spec.template`, and rendered in the status.

A template is trusted if an administrator wrote it: its objects may then be created with the cluster's stored
credential, and a workspace may have the permissions and the place that it chooses. The annotation `service.sh/trusted`
records this, and only `admission/templates.py` writes it. An instance stores the level in `status.templateTrust` when
it is rendered, because the template may change afterwards.

DevPodEnvironmentTemplate: a devcontainer.json for workspaces, in the place of the one that a repository has.

It has no trust level, unlike a template: a runner treats it as it treats the file of a repository, so it gives neither
permissions nor a place to a workspace. Those come from the workspace template.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from fairlead.core.body_errors import Malformed, TooManyValues
from fairlead.core.json import parse_jsonc
from fairlead.core.objects import Object, annotations_of, get_path
from fairlead.domain.parameters import definition_problems
from fairlead.domain.template_versions import newest_version, parse_version
from fairlead.domain.typed_objects import VirtualClusterInstance
from fairlead.kinds.fields import (
    CATEGORY,
    CHART,
    PARAMETERS,
    PROJECT_SECRET_REF,
    STRING_MAP,
    TEMPLATE_REF,
    owned_spec,
    owner_problems,
    password_independent_fields,
    password_paths,
)
from fairlead.registry import limits
from fairlead.registry.kind import Change, Column, Kind, Problem, Sensitivity
from fairlead.registry.schema import (
    Schema,
    array,
    boolean,
    enum,
    mapping,
    obj,
    open_object,
    string,
    with_description,
    without_effect,
)

_METADATA = obj(
    "Labels and annotations of the created objects.",
    labels=with_description(STRING_MAP, "Labels to set."),
    annotations=with_description(STRING_MAP, "Annotations to set."),
)

_INSTANCE_TEMPLATE = obj(
    "Metadata for the instance object.",
    metadata=obj(
        "Labels and annotations.",
        labels=without_effect(with_description(STRING_MAP, "Labels to set."), "has no effect; set those of instances"),
        annotations=with_description(STRING_MAP, "Annotations. Those of sleep mode apply to each instance."),
    ),
)

_INSTANCE_ACCESS = obj(
    "Permissions of users and teams in the instance.",
    defaultClusterRole=string("Cluster role of users that no rule applies to."),
    rules=array(
        obj(
            users=array(string(), "Users that the rule applies to. `*` means every user.", max_items=limits.MEMBERS),
            teams=array(string(), "Teams that the rule applies to.", max_items=limits.MEMBERS),
            clusterRole=string("Cluster role that is granted."),
        ),
        "Rules by user and team. All matching rules apply; the default applies if none matches.",
        max_items=limits.ACCESS_ENTRIES,
    ),
)

_APPS = array(
    obj(
        name=string("Name of the App."),
        namespace=string("Namespace to deploy it to. Empty means the App's default namespace."),
        releaseName=string("Name of the release. Empty means the name of the App."),
        version=string("Version of the App. Empty means its unversioned content."),
        parameters=string("Values for the App's parameters, as YAML text.", max_length=limits.DOCUMENT),
    ),
    "Apps to deploy.",
    max_items=limits.DEPLOYMENTS,
)

_CHARTS = array(
    obj(
        **CHART,
        releaseName=string("Name of the release. Empty means the name of the chart."),
        releaseNamespace=string("Namespace to deploy to."),
        values=string("Values for the chart, as YAML text.", max_length=limits.DOCUMENT),
        wait=boolean("Wait until all deployed objects are ready. Defaults to false."),
        timeout=string("Timeout of the deployment, from `1s` to `30m`, such as `5m0s`. Defaults to `5m`."),
    ),
    "Charts to deploy.",
    max_items=limits.DEPLOYMENTS,
)

_OBJECTS = string("Kubernetes objects to create, as YAML documents separated by `---`.", max_length=limits.DOCUMENT)

SPACE_TEMPLATE_SPEC = obj(
    "A space: a namespace in a connected cluster.",
    metadata=_METADATA,
    instanceTemplate=_INSTANCE_TEMPLATE,
    objects=_OBJECTS,
    charts=_CHARTS,
    apps=_APPS,
    access=_INSTANCE_ACCESS,
)

VIRTUAL_CLUSTER_TEMPLATE_SPEC = obj(
    "A virtual cluster and the space that it runs in.",
    metadata=_METADATA,
    instanceTemplate=_INSTANCE_TEMPLATE,
    objects=_OBJECTS,
    charts=_CHARTS,
    apps=_APPS,
    access=_INSTANCE_ACCESS,
    helmRelease=obj(
        "Helm release of the virtual cluster.",
        chart=obj(
            "Chart of the virtual cluster.",
            name=CHART["name"],
            repo=CHART["repoURL"],
            version=CHART["version"],
            username=CHART["username"],
            password=string("Password for the repository.", format="password", max_length=limits.CREDENTIAL),
        ),
        values=string("Values for the chart, as YAML text.", max_length=limits.DOCUMENT),
    ),
    accessPoint=obj(
        "External access to the virtual cluster.",
        ingress=obj(
            "Access through an ingress, without this server in between.",
            enabled=boolean(
                "Create an ingress for it. The cluster needs the annotation `service.sh/ingress-suffix`. Defaults to "
                "false."
            ),
        ),
    ),
    forwardToken=boolean(
        "Send the requester's own token to the virtual cluster, which authenticates it, instead of impersonating the "
        "requester. Only for templates of administrators. Defaults to false."
    ),
    spaceTemplate=obj(
        "The space that the virtual cluster runs in.",
        metadata=_METADATA,
        objects=_OBJECTS,
        charts=_CHARTS,
        apps=_APPS,
    ),
)

_VALUES = mapping(
    obj(
        value=string("The value.", max_length=limits.ENVIRONMENT),
        valueFrom=obj(
            "Source of the value, instead of `value`.",
            projectSecretRef=PROJECT_SECRET_REF,
            sharedSecretRef=obj(
                "A key of a shared secret.",
                namespace=string("Namespace of the shared secret."),
                name=string("Name of the shared secret."),
                key=string("Key within the secret."),
            ),
        ),
    )
)


def _forwarding_option(credential: str) -> Schema:
    return obj(f"Forwarding of {credential} credentials.", disabled=boolean("Do not forward them. Defaults to false."))


_NOTHING_CREATED = "has no effect: nothing is created for a workspace in a cluster"
_SSH_CREDENTIALS = "has no effect: only the clone uses SSH keys of the project; forward an agent to sessions"
_REGISTRY_CREDENTIALS = "has no effect: no credentials for registries are forwarded"

WORKSPACE_TEMPLATE_SPEC = obj(
    "Definition of a workspace.",
    provider=obj(
        "Provider that runs the workspace.",
        required=("name",),
        name=string("Name of the provider."),
        options=with_description(_VALUES, "Options of the provider by name."),
        env=without_effect(
            with_description(_VALUES, "Environment variables of the provider's commands."),
            "has no effect; use workspaceEnv",
        ),
    ),
    spaceTemplate=without_effect(
        with_description(SPACE_TEMPLATE_SPEC, "Space to create for the workspace."), _NOTHING_CREATED
    ),
    spaceTemplateRef=without_effect(
        with_description(TEMPLATE_REF, "Template of the space to create for the workspace."), _NOTHING_CREATED
    ),
    virtualClusterTemplate=without_effect(
        with_description(VIRTUAL_CLUSTER_TEMPLATE_SPEC, "Virtual cluster to create for the workspace."),
        _NOTHING_CREATED,
    ),
    virtualClusterTemplateRef=without_effect(
        with_description(TEMPLATE_REF, "Template of the virtual cluster to create for the workspace."),
        _NOTHING_CREATED,
    ),
    workspaceEnv=with_description(_VALUES, "Environment variables of the workspace."),
    initEnv=without_effect(
        with_description(_VALUES, "Environment variables during the setup of the workspace."),
        "has no effect; use workspaceEnv",
    ),
    instanceTemplate=_INSTANCE_TEMPLATE,
    useProjectGitCredentials=boolean(
        "Offer the project's Git credentials in the workspace: those that its owner may use. Defaults to false."
    ),
    useProjectSSHCredentials=without_effect(
        boolean("Offer the project's SSH keys in the workspace. Defaults to false."), _SSH_CREDENTIALS
    ),
    gitCloneStrategy=enum(
        "Which part of the history of a Git repository is cloned. `blobless`: all commits, files when they are needed. "
        "`treeless`: also folders when they are needed. `shallow`: one commit. Empty means a full clone.",
        "",
        "blobless",
        "treeless",
        "shallow",
    ),
    credentialForwarding=obj(
        "Which of the user's own credentials the workspace may use.",
        docker=without_effect(_forwarding_option("container registry"), _REGISTRY_CREDENTIALS),
        git=_forwarding_option("Git"),
    ),
    preventWakeUpOnConnection=boolean("Do not wake up on SSH connections. Defaults to false."),
)


def template_kind(name: str, instances: str, template: Schema) -> Kind:
    """Builds a template kind. `instances` is the plural of the instances, `template` the schema of the definition."""
    fields = {
        "spec": owned_spec(
            f"Definition of {instances} created from this template, and access to it.",
            template=with_description(template, "The unversioned definition, for instances without a version."),
            parameters=with_description(PARAMETERS, "The parameters of `template`."),
            versions=array(
                obj(
                    template=with_description(template, "The definition of this version."),
                    parameters=with_description(PARAMETERS, "The parameters of this version."),
                    version=string("Version with three components, such as `1.4.0`."),
                ),
                "Versions of the template, one entry for each.",
                max_items=limits.VERSIONS,
            ),
        ),
        "status": open_object("Not used. Not a subresource."),
    }
    return Kind(
        name=name,
        plural=f"{name.lower()}s",
        namespaced=False,
        fields=fields,
        description=f"A template for {instances}.",
        categories=(CATEGORY,),
        columns=(
            Column("Display Name", "spec.displayName", description="Human-readable name."),
            Column("Newest", newest_version_cell, description="Newest version, if it has versions."),
            Column("Parameters", _count_parameters, type="integer", description="Number of parameters."),
            Column("Description", "spec.description", description="Purpose of the template.", wide=True),
        ),
        selectable=("spec.owner.user",),
        sensitive=password_paths(fields),
        write_only=password_paths(fields),
        safe_siblings=password_independent_fields(fields),
        has_access_entries=True,
        check=check_template,
        sensitivity=Sensitivity.NORMAL,
    )


def check_template(change: Change) -> Iterable[Problem]:
    spec = change.spec
    yield from owner_problems(spec)
    too_many = list(_total_limit_problems(spec, (change.old or {}).get("spec") or {}))
    if too_many:
        yield from too_many
        return
    yield from definition_problems("spec.parameters", spec.get("parameters") or ())
    versions = spec.get("versions") or ()
    yield from version_problems(versions)
    for index, entry in enumerate(versions):
        yield from definition_problems(f"spec.versions[{index}].parameters", entry.get("parameters") or ())


def version_problems(versions: Sequence[Object]) -> Iterator[Problem]:
    """Reports entries of `spec.versions` without a valid version, and those that occur twice."""
    seen: set[tuple[int, ...]] = set()
    for index, entry in enumerate(versions):
        path = f"spec.versions[{index}].version"
        text = entry.get("version") or ""
        version = parse_version(text)
        if version is None:
            yield Problem.invalid(path, text, "must be three numbers separated by dots, such as 1.4.0")
        elif version in seen:
            yield Problem.duplicate(path, text)
        else:
            seen.add(version)


def _total_limit_problems(spec: Object, before: Object) -> Iterator[Problem]:
    """Limits the totals over all versions, because validating parameters and compiling regular expressions takes time.

    An object that was stored with more, before the limits existed, must not grow.
    """
    counts: tuple[tuple[Callable[[Object], int], int, str], ...] = (
        (lambda each: len(_all_parameters(each)), limits.TEMPLATE_PARAMETERS, "parameters in all versions together"),
        (lambda each: len(_patterns(each)), limits.PATTERNS, "different regular expressions in all versions together"),
        (
            lambda each: sum(map(len, _patterns(each))),
            limits.PATTERN_CHARACTERS,
            "characters in the different regular expressions of all versions together",
        ),
    )
    for count_in, limit, what in counts:
        count = count_in(spec)
        if count > limit and count > count_in(before):
            yield Problem.too_many("spec.versions", count, limit, what)


def _all_parameters(spec: Object) -> list[Object]:
    return [each for part in (spec, *(spec.get("versions") or ())) for each in part.get("parameters") or ()]


def _patterns(spec: Object) -> set[str]:
    found = {each.get(field) or "" for each in _all_parameters(spec) for field in ("validation", "invalidation")}
    return found - {""}


def newest_version_cell(each: Object) -> str | None:
    return newest_version(entry.get("version") or "" for entry in get_path(each, "spec.versions") or ())


def _count_parameters(each: Object) -> int:
    return len(get_path(each, "spec.parameters") or ())


SPACE_TEMPLATE = template_kind("SpaceTemplate", "spaces", SPACE_TEMPLATE_SPEC)


VIRTUAL_CLUSTER_TEMPLATE = template_kind("VirtualClusterTemplate", "virtual clusters", VIRTUAL_CLUSTER_TEMPLATE_SPEC)


WORKSPACE_TEMPLATE = template_kind("DevPodWorkspaceTemplate", "workspaces", WORKSPACE_TEMPLATE_SPEC)


TRUST_ANNOTATION = "service.sh/trusted"
TRUE, FALSE = "true", "false"

TRUSTED, CONFINED, UNMARKED = "Trusted", "Confined", "Unmarked"
"""Written by an administrator; written by another user; stored before the annotation existed."""
TRUST_LEVELS = (TRUSTED, CONFINED, UNMARKED)

DEFINITION_FIELDS = ("template", "parameters", "versions")
"""The fields of a template's spec that determine what is created in a cluster."""


def forwards_token(instance: VirtualClusterInstance) -> bool:
    """Whether requests to the virtual cluster have the token of their user. Only if an administrator wrote its
    template, and this server has deployed it with that: the server of anybody else could keep the tokens."""
    if not instance.rendered.get("forwardToken") or instance.is_deployed_elsewhere or instance.was_confined:
        return False
    return (instance.template_trust, instance.applied_trust) == (TRUSTED, TRUSTED)


def trust_level(instance: Object, template: Object | None) -> str:
    """The trust level of an instance's definition. An inline template is always `CONFINED`."""
    if template is None or not get_path(instance, "spec.templateRef.name"):
        return CONFINED
    mark = annotations_of(template).get(TRUST_ANNOTATION)
    if mark is None:
        return UNMARKED
    return TRUSTED if mark == TRUE else CONFINED


ENVIRONMENT_SPEC = obj(
    "Definition of an environment.",
    inline=string(
        "Text of a devcontainer.json, which may contain comments. Paths in it are relative to `.devcontainer` of the "
        "repository. Without `image` and `build`, the image of the source or of the template is used.",
        max_length=limits.DEVCONTAINER,
    ),
)

FIELDS = {
    "spec": owned_spec(
        "Definition of the environment, and access to it.",
        template=with_description(ENVIRONMENT_SPEC, "The unversioned definition, for workspaces without a version."),
        versions=array(
            obj(
                template=with_description(ENVIRONMENT_SPEC, "The definition of this version."),
                version=string("Version with three components, such as `1.4.0`."),
            ),
            "Versions of the environment, one entry for each.",
            max_items=limits.VERSIONS,
        ),
    ),
    "status": open_object("Not used. Not a subresource."),
}


def check(change: Change) -> Iterable[Problem]:
    spec = change.spec
    yield from owner_problems(spec)
    yield from version_problems(spec.get("versions") or ())
    known = {text for _, text in _texts((change.old or {}).get("spec") or {})}
    texts = list(_texts(spec))
    size = sum(len(text) for _, text in texts)
    if size > limits.DEVCONTAINERS and size > sum(map(len, known)):
        yield Problem.too_many("spec.versions", size, limits.DEVCONTAINERS, "characters in all versions together")
        return
    has_unversioned = spec.get("template") is not None or not spec.get("versions")
    if has_unversioned and not get_path(spec, "template.inline"):
        yield Problem.required("spec.template.inline", "must be the text of a devcontainer.json")
    for index, entry in enumerate(spec.get("versions") or ()):
        if not get_path(entry, "template.inline"):
            path = f"spec.versions[{index}].template.inline"
            yield Problem.required(path, "must be the text of a devcontainer.json")
    for path, text in texts:
        if text not in known and (reason := _find_fault(text)):
            yield Problem.invalid(path, "<devcontainer.json>", f"is no devcontainer.json: {reason}")


def _texts(spec: Object) -> Iterator[tuple[str, str]]:
    """The texts, with their paths."""
    if text := get_path(spec, "template.inline"):
        yield "spec.template.inline", text
    for index, entry in enumerate(spec.get("versions") or ()):
        if text := get_path(entry, "template.inline"):
            yield f"spec.versions[{index}].template.inline", text


def _find_fault(text: str) -> str:
    try:
        parse_jsonc(text)
    except (Malformed, TooManyValues) as error:
        return str(error)
    return ""


ENVIRONMENT_TEMPLATE = Kind(
    name="DevPodEnvironmentTemplate",
    plural="devpodenvironmenttemplates",
    namespaced=False,
    fields=FIELDS,
    description="An environment for workspaces: a devcontainer.json in the place of that of the repository.",
    categories=(CATEGORY,),
    columns=(
        Column("Display Name", "spec.displayName", description="Human-readable name."),
        Column("Newest", newest_version_cell, description="Newest version, if it has versions."),
        Column("Description", "spec.description", description="Purpose of the environment.", wide=True),
    ),
    selectable=("spec.owner.user",),
    has_access_entries=True,
    check=check,
    sensitivity=Sensitivity.NORMAL,
)
