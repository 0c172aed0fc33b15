"""What a preset gives to a workspace that is created from it. Pure.

Fields of the workspace take precedence: a preset sets only what the workspace leaves out. Its parameters are those of
its template, so they count only together with it.
"""

from fairlead.core import yaml
from fairlead.core.objects import Object, annotations_of, deep_copy, get_path, metadata
from fairlead.core.workspaces import SOURCE_ANNOTATION
from fairlead.domain.parameters import parse_values
from fairlead.domain.template_resolution import DefinitionSource, find_version

PRESET = DefinitionSource("preset", "spec.presetRef")
COPIED_FIELDS = ("templateRef", "environmentRef", "parameters")
"""The fields of a workspace's spec that a preset sets."""


def find_preset_definition(workspace: Object, preset: Object) -> Object:
    """The definition that the workspace requests. Raises ResolutionError."""
    spec = preset.get("spec") or {}
    unversioned = {name: spec[name] for name in ("source", *COPIED_FIELDS) if spec.get(name)}
    versions = [{"version": each.get("version"), "template": each} for each in spec.get("versions") or ()]
    versioned = {"metadata": metadata(preset), "spec": {"template": unversioned, "versions": versions}}
    return find_version(workspace, versioned, PRESET).template


def apply_definition(workspace: Object, definition: Object) -> Object:
    """The workspace with what the preset gives it."""
    spec = dict(workspace.get("spec") or {})
    if not get_path(spec, "templateRef.name") and not spec.get("template"):
        spec["templateRef"] = {**(spec.get("templateRef") or {}), **(definition.get("templateRef") or {})}
        if parameters := _merge_parameters(definition.get("parameters") or "", spec.get("parameters") or ""):
            spec["parameters"] = parameters
    if not get_path(spec, "environmentRef.name") and definition.get("environmentRef"):
        spec["environmentRef"] = definition["environmentRef"]
    meta = metadata(workspace)
    annotations = meta.get("annotations") or {}
    if not annotations.get(SOURCE_ANNOTATION) and (source := _describe_source(definition.get("source") or {})):
        meta = {**meta, "annotations": {**annotations, SOURCE_ANNOTATION: source}}
    return {**workspace, "metadata": meta, "spec": spec}


def keep_copied(workspace: Object, before: Object) -> Object:
    """The workspace with what it had from its preset, where an update leaves that out: manifests name the preset only.
    A template of its own takes the place of the preset's."""
    spec = dict(workspace.get("spec") or {})
    old = before.get("spec") or {}
    for name in COPIED_FIELDS:
        is_replaced = name == "templateRef" and bool(spec.get("template"))
        if spec.get(name) is None and old.get(name) is not None and not is_replaced:
            spec[name] = deep_copy(old[name])
    meta = metadata(workspace)
    annotations = meta.get("annotations") or {}
    source = annotations_of(before).get(SOURCE_ANNOTATION)
    if source and not annotations.get(SOURCE_ANNOTATION):
        meta = {**meta, "annotations": {**annotations, SOURCE_ANNOTATION: source}}
    return {**workspace, "metadata": meta, "spec": spec}


def _merge_parameters(preset: str, own: str) -> str:
    if not preset or not own:
        return own or preset
    defaults, _ = parse_values(preset)
    values, problems = parse_values(own)
    return own if problems else yaml.encode({**defaults, **values}).decode()


def _describe_source(source: Object) -> str:
    """The value of the annotation that runners read."""
    if source.get("git"):
        return f"git:{str(source['git']).removeprefix('git:')}"
    return f"image:{source['image']}" if source.get("image") else ""
