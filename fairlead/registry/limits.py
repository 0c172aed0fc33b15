"""How much of anything a request may hold: every number in one table.

`registry/schema.py` has them as the defaults of its words, kinds name them where another number is right, and what no
schema can say (free-form places, keys of maps, selectors, queries) is checked against them in code. docs/limits.md
shows this table; a test keeps the two together.

A limit is far beyond what people need and far below what hurts everybody else. Where Kubernetes has a rule of its own,
that rule speaks first, in its own words: the numbers here are then above it.
"""

from fairlead.core.body_errors import MAX_VALUES

KIB, MIB = 1024, 1024 * 1024

# Characters of texts

NAME = 1_024
"""Names, identifiers, one-word answers: the default of a text. Names of objects end at 253, groups of directories at
some hundreds."""
TIME = 64
"""A date and time with any precision."""
URL = 8_192
EXPRESSION = 8_192
"""A selector, cron text or list with commas."""
DESCRIPTION = 16 * KIB
MESSAGE = 32 * KIB
"""What a condition, event or phase says to people."""
CREDENTIAL = 16 * KIB
"""Passwords and tokens; the key file of a cloud account is a password of 3 KiB."""
ENVIRONMENT = 128 * KIB
"""The value of an environment variable: Linux takes no longer one."""
PICTURE = 512 * KIB
"""An icon as a data URL."""
README = 512 * KIB
SETTINGS = 64 * KIB
"""The text of the Config."""
CERTIFICATES = 1 * MIB
DOCUMENT = 1_536 * KIB
"""Manifests, scripts, values of charts, parameters: as large as a whole object may be in etcd."""
DATA = 4 * MIB
"""One value of a ConfigMap or Secret. All of them together end at 1 MiB decoded, which is what people meet."""

# Entries of lists

ITEMS = 1_000
"""The default of a list."""
NAMES_IN_A_RULE = 2_000
"""Names in a rule of a scope."""
SCOPE_ENTRIES = 1_000
ROLE_RULES = 5_000
ROLE_NAMES = 10_000
"""Names of objects in a rule of a Role, which operators fill in, too."""
SUBJECTS = 10_000
MEMBERS = 10_000
"""People in a project, a team or an access entry."""
GROUPS = 5_000
"""Groups of a user. Kerberos ends at 1,015, directories do not."""
ACCESS_ENTRIES = 1_000
ALLOWED = 5_000
"""Clusters, runners and templates that a project may use."""
CONDITIONS = 100
PARAMETERS = 500
DEFINITIONS = 2_000
"""Parameters of all versions of a template together."""
PATTERNS = 16
"""Different regular expressions of all versions of a template together: to compile one takes up to 3 milliseconds."""
PATTERN_CHARACTERS = 4_000
"""Characters of all these together."""
OPTIONS = 1_000
"""Values that a parameter can be chosen from."""
VERSIONS = 1_000
DEPLOYMENTS = 500
"""Charts and apps of a template."""
AUDIENCES = 100
FINALIZERS = 1_000
OWNERS = 1_000
MANAGERS = 10_000
"""Entries of managedFields. Beyond 1,000 they are passed over, as Kubernetes does with those that make no sense."""
REPORTED_TOKENS = 20_000
"""Tokens whose use an agent reports at once; it keeps half as many."""
ANSWERED = 1_000_000
"""Lists that are only in answers, or that only the server writes: as many as there are objects."""

# Entries and keys of maps

ENTRIES = 1_000
"""The default of a map."""
KEY = 1_024
"""Characters of a key."""
LABELS = 2_000
ANNOTATIONS = 10_000
ANNOTATIONS_BYTES = 256 * KIB
"""Keys and values of all annotations together, as in Kubernetes."""
DATA_KEYS = 10_000
"""Keys of a ConfigMap or Secret."""
DATA_BYTES = 1 * MIB
"""All values of a ConfigMap or Secret together, decoded, as in Kubernetes."""

# Names in metadata

METADATA_TEXT = 16 * KIB
"""Single texts of metadata. What names and finalizers look like is Kubernetes' rule, and shorter."""
ANNOTATION = 1 * MIB
"""One annotation; all of them together end at ANNOTATIONS_BYTES."""

# Free-form places: whatever stands where a schema takes anything

FREE_BYTES = 512 * KIB
FREE_VALUES = 20_000
FREE_DEPTH = 128

# Whole requests

VALUES = MAX_VALUES
"""Values in a body: texts, numbers, lists and maps, nested ones counted one by one."""
SELECTOR_TERMS = 64
SELECTOR_VALUES = 2_000
"""Values in the parentheses of one term."""
SELECTOR_LENGTH = 32 * KIB
QUERY_PARAMETERS = 100
PATCH_OPERATIONS = 10_000
