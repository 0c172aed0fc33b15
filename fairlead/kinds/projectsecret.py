"""ProjectSecret: credentials of a project, for the instances and people in it."""

from fairlead.kinds.secret_kinds import secret_kind

PROJECT_SECRET = secret_kind("ProjectSecret", "projectsecrets", "Credentials that a project's instances can use.")
