"""Tables in pages that are otherwise written by hand. Their rows are replaced where they are."""

import re
from pathlib import Path

from fairlead.settings import SETTINGS, Setting, flag, variable
from scripts.reference.audit_annotations import ANNOTATIONS
from scripts.reference.text import format_row

ANNOTATION_TABLE = re.compile(r"(?<=\| annotation \| meaning \|\n\|---\|---\|\n)(?:\|.*\n)+")
SETTING_ROW = re.compile(r"^\| `(\w+)` \| `--.*$", re.MULTILINE)


def build_tables(docs: Path) -> dict[Path, str]:
    settings, audit = docs / "settings.md", docs / "audit.md"
    return {
        settings: replace_setting_rows(settings.read_text()),
        audit: replace_annotation_rows(audit.read_text()),
    }


def replace_setting_rows(page: str) -> str:
    """The page with the rows of settings as they are declared. A new setting needs a row with its name first: a program
    cannot know which section it belongs to."""
    listed = SETTING_ROW.findall(page)
    if missing := SETTINGS.keys() - {*listed}:
        first = sorted(missing)[0]
        example = f"| `{first}` | `{flag(first)}` |"
        raise SystemExit(f"docs/settings.md has no row for {', '.join(sorted(missing))}; add `{example}` to a table")
    if unknown := {*listed} - SETTINGS.keys():
        raise SystemExit(
            f"docs/settings.md has rows for {', '.join(sorted(unknown))}, which are no settings; remove them"
        )
    return SETTING_ROW.sub(lambda match: build_setting_row(SETTINGS[match[1]]), page)


def replace_annotation_rows(page: str) -> str:
    """The page with the table of annotations as they are declared."""
    rows = "".join(format_row((f"`{name}`", meaning)) + "\n" for name, meaning in ANNOTATIONS.items())
    page, count = ANNOTATION_TABLE.subn(lambda _: rows, page)
    if count != 1:
        raise SystemExit("docs/audit.md needs exactly one table with the columns annotation and meaning")
    return page


def build_setting_row(setting: Setting) -> str:
    name = setting.name
    names = (f"`{name}`", f"`{flag(name)}`", f"`{variable(name)}`")
    about = setting.info
    return format_row(
        (*names, f"`{setting.default_text}`", format_accepted_values(setting), about.help, about.changed_by)
    )


def format_accepted_values(setting: Setting) -> str:
    info = setting.info
    return f"{info.minimum} to {info.maximum}" if setting.type is int else ", ".join(info.choices)
