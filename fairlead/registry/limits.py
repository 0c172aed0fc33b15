"""Limits on the content of requests, all in one table.

`registry/schema.py` uses them as defaults, and kinds pass another one where needed. What a schema cannot express
(free-form values, keys of maps, selectors, queries) is checked against them in code. docs/limits.md shows this table,
and a test compares the two.

A limit is far above what users need and far below what would slow down the server for others. Where Kubernetes has a
limit of its own, the one here is higher, so that the error is Kubernetes' own.
"""

from fairlead.core.body_errors import MAX_NUMBER_CHARS, MAX_VALUES

KIB, MIB = 1024, 1024 * 1024

# Strings, in characters

NAME = 1_024
"""Names, identifiers, single words: the default for a string. Object names end at 253 characters, groups from
directories at a few hundred."""
TIME = 64
"""A date and time with any precision."""
URL = 8_192
EXPRESSION = 8_192
"""A selector, cron expression or comma-separated list."""
DESCRIPTION = 16 * KIB
MESSAGE = 32 * KIB
"""The message of a condition, event or phase."""
CREDENTIAL = 16 * KIB
"""Passwords and tokens. The key file of a cloud account is a password of 3 KiB."""
ENVIRONMENT = 128 * KIB
"""The value of an environment variable; Linux accepts no longer one."""
ICON = 512 * KIB
"""An icon as a data URL."""
README = 512 * KIB
CONFIG_TEXT = 64 * KIB
"""The text of the Config."""
DEVCONTAINER = 64 * KIB
"""The text of a devcontainer.json in an environment."""
DEVCONTAINERS = 256 * KIB
"""All such texts of an environment together, in characters: they are parsed when it is written."""
CERTIFICATES = 1 * MIB
DOCUMENT = 1_536 * KIB
"""Manifests, scripts, chart values, parameters: the maximum size of an object in etcd."""
DATA = 4 * MIB
"""One value of a ConfigMap or Secret. All of them together may have 1 MiB decoded, which is the limit that users reach.
"""

# Lists, in entries

ITEMS = 1_000
"""The default for a list."""
SCOPE_RULE_NAMES = 2_000
"""Names in a rule of a scope."""
SCOPE_ENTRIES = 1_000
SCOPE_NAMES = 20_000
"""Names, namespaces, verbs, resources and paths in all rules of a scope together. Compiling so many takes some
milliseconds, which the first request with the key has to wait for."""
ROLE_RULES = 5_000
ROLE_NAMES = 10_000
"""resourceNames in a rule of a Role, which operators generate, too."""
SUBJECTS = 10_000
MEMBERS = 10_000
"""Users in a project, a team or an access entry."""
GROUPS = 5_000
"""Groups of a user. Kerberos allows 1,015; directories have no limit."""
ACCESS_ENTRIES = 1_000
ALLOWED_OBJECTS = 5_000
"""Clusters, runners and templates that a project may use."""
CONDITIONS = 100
PARAMETERS = 500
TEMPLATE_PARAMETERS = 2_000
"""Parameters of all versions of a template together."""
PATTERNS = 16
"""Distinct regular expressions in all versions of a template together. Compiling one takes up to 3 milliseconds."""
PATTERN_CHARACTERS = 4_000
"""Characters of all these regular expressions together."""
OPTIONS = 1_000
"""Values that a parameter offers."""
VERSIONS = 1_000
DEPLOYMENTS = 500
"""Charts and apps of a template."""
AUDIENCES = 100
FINALIZERS = 1_000
OWNER_REFERENCES = 1_000
MANAGED_FIELDS = 10_000
"""Entries of managedFields. More than 1,000 are ignored, as Kubernetes ignores invalid entries."""
REPORTED_TOKENS = 20_000
"""Tokens whose last use an agent reports in one request. The agent keeps half as many."""
SERVER_WRITTEN_ITEMS = 1_000_000
"""Lists that only occur in responses or that only the server writes: they can be as long as there are objects."""

# Maps: entries and keys

ENTRIES = 1_000
"""The default for a map."""
KEY = 1_024
"""Characters of a map key."""
LABELS = 2_000
ANNOTATIONS = 10_000
ANNOTATIONS_BYTES = 256 * KIB
"""Keys and values of all annotations together, as in Kubernetes."""
DATA_KEYS = 10_000
"""Keys of a ConfigMap or Secret."""
DATA_BYTES = 1 * MIB
"""All values of a ConfigMap or Secret together, decoded, as in Kubernetes."""

# Strings in metadata

METADATA_TEXT = 16 * KIB
"""A single string in metadata. Kubernetes' own rules for names and finalizers are stricter."""
ANNOTATION = 1 * MIB
"""One annotation; all of them together are limited by ANNOTATIONS_BYTES."""

# Free-form values: fields whose schema accepts any content

FREE_FORM_BYTES = 512 * KIB
FREE_FORM_VALUES = 20_000
FREE_FORM_DEPTH = 128

# Whole requests

NUMBER = MAX_NUMBER_CHARS
"""Characters of a number in JSON."""
VALUES = MAX_VALUES
"""JSON values in a body: strings, numbers, lists and maps, with nested ones counted individually."""
SELECTOR_TERMS = 64
SELECTOR_VALUES = 2_000
"""Values in the parentheses of one term."""
SELECTOR_LENGTH = 32 * KIB
QUERY_PARAMETERS = 100
PATCH_OPERATIONS = 10_000
PATCH_PATH = 64 * KIB
"""Characters of a path in a JSON patch: enough for 64 levels with the longest keys."""

# What is stored, of all kinds together. These are the defaults of the settings with the same names.

STORED_OBJECTS_PER_NAMESPACE = 10_000
STORED_BYTES_PER_NAMESPACE = 64 * MIB
STORED_OBJECTS_PER_USER = 2_000
STORED_BYTES_PER_USER = 16 * MIB
"""All objects that a user has created, in all namespaces."""
