"""What the three kinds of templates have in common: one definition or versions of it, and parameters for either."""

from collections.abc import Callable, Iterable, Iterator

from fairlead.core.objects import Object, dig
from fairlead.kinds.parameters import definition_problems
from fairlead.kinds.shared import (
    ACCESS,
    CATEGORY,
    DESCRIPTION,
    DISPLAY_NAME,
    OWNER,
    PARAMETERS,
    owner_problems,
    passwords,
    unbound_from_passwords,
)
from fairlead.kinds.versions import newest, parse_version
from fairlead.registry import limits
from fairlead.registry.kind import Change, Column, Kind, Problem
from fairlead.registry.schema import Schema, array, described, free, obj, string


def template_kind(name: str, what: str, template: Schema) -> Kind:
    """The kind of templates for `what`, whose definitions look like `template`."""
    fields = {
        "spec": obj(
            f"How {what} made from this template look, and who may make them.",
            displayName=DISPLAY_NAME,
            description=DESCRIPTION,
            owner=OWNER,
            access=ACCESS,
            template=described(template, "The definition, for instances that name no version."),
            parameters=described(PARAMETERS, "The parameters of `template`."),
            versions=array(
                obj(
                    template=described(template, "The definition of this version."),
                    parameters=described(PARAMETERS, "The parameters of this version."),
                    version=string("Version in three parts, such as `1.4.0`."),
                ),
                "Versions of the template: one entry for each.",
                most=limits.VERSIONS,
            ),
        ),
        "status": free("Nothing so far. A part of the object like any other."),
    }
    return Kind(
        name=name,
        plural=f"{name.lower()}s",
        namespaced=False,
        fields=fields,
        description=f"A template that {what} are made from.",
        categories=(CATEGORY,),
        columns=(
            Column("Display Name", "spec.displayName", description="Name shown to people."),
            Column("Newest", _newest, description="Newest version, if it has versions."),
            Column("Parameters", _count_parameters, type="integer", description="Number of parameters."),
            Column("Description", "spec.description", description="What it is for.", wide=True),
        ),
        selectable=("spec.owner.user",),
        secret=passwords(fields),
        hidden=passwords(fields),
        unbound=unbound_from_passwords(fields),
        shared=True,
        check=check,
    )


def check(change: Change) -> Iterable[Problem]:
    spec = change.spec
    yield from owner_problems(spec)
    crowded = list(_crowd_problems(spec, (change.old or {}).get("spec") or {}))
    if crowded:
        yield from crowded
        return
    yield from definition_problems("spec.parameters", spec.get("parameters") or ())
    seen: set[tuple[int, ...]] = set()
    for index, entry in enumerate(spec.get("versions") or ()):
        path, text = f"spec.versions[{index}]", entry.get("version") or ""
        version = parse_version(text)
        if version is None:
            yield Problem.invalid(
                f"{path}.version", text, "must be three numbers with dots between them, such as 1.4.0"
            )
        elif version in seen:
            yield Problem.duplicate(f"{path}.version", text)
        else:
            seen.add(version)
        yield from definition_problems(f"{path}.parameters", entry.get("parameters") or ())


def _crowd_problems(spec: Object, before: Object) -> Iterator[Problem]:
    """What all versions have together: to look at a parameter costs something, and to compile a regular expression for
    the first time costs milliseconds. What was stored with more before may not grow."""
    counts: tuple[tuple[Callable[[Object], int], int, str], ...] = (
        (lambda each: len(_definitions(each)), limits.DEFINITIONS, "parameters in all versions together"),
        (lambda each: len(_patterns(each)), limits.PATTERNS, "different regular expressions in all versions together"),
        (
            lambda each: sum(map(len, _patterns(each))),
            limits.PATTERN_CHARACTERS,
            "characters in the different regular expressions of all versions together",
        ),
    )
    for count_in, most, what in counts:
        count = count_in(spec)
        if count > most and count > count_in(before):
            yield Problem.too_many("spec.versions", count, most, what)


def _definitions(spec: Object) -> list[Object]:
    return [each for part in (spec, *(spec.get("versions") or ())) for each in part.get("parameters") or ()]


def _patterns(spec: Object) -> set[str]:
    found = {each.get(field) or "" for each in _definitions(spec) for field in ("validation", "invalidation")}
    return found - {""}


def _newest(each: Object) -> str | None:
    return newest(entry.get("version") or "" for entry in dig(each, "spec.versions") or ())


def _count_parameters(each: Object) -> int:
    return len(dig(each, "spec.parameters") or ())
