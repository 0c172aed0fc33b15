// Texts of access: May I?, access keys, users and teams.

const READ = "get, list, watch";
const quote = (names) => names.map((name) => `"${name}"`).join(", ");
const which = (name, all, one) => (name === "*" ? all : `${one} "${name || "…"}"`);

export const T = {
  title: "May I?",
  me: "Who I am",
  user: "User",
  teams: "Teams",
  groups: "Groups",
  key: "Access key",
  none: "none",
  question: "Question",
  verb: "Verb",
  kind: "Kind",
  namespace: "Project or namespace",
  name: "Name",
  subresource: "Subresource",
  more: "More",
  asUser: "User (empty: me)",
  withKey: "With access key",
  ask: "Ask",
  unknownKind: "Choose a kind of the list, or write PLURAL.GROUP.",
  oneOf: "Ask as a user or with a key, not both.",
  mayNotAsk: "not permitted",
  allowed: "Yes, allowed",
  denied: "No, denied",
  filtered: "Yes, but only some of the objects",
  path: "How it is decided",
  filteredReason: "The list shows the objects that the user may get, and leaves out the others.",
  noOneAllows: "No role, membership or ownership allows it.",
  showsPart: "shows the objects that the user may get",
  otherSteps: (count) => `${count} more ${count === 1 ? "step" : "steps"} did not decide`,
  membersMay: "its members may",
  projectOwnerMay: "the owner of the project and administrators may",
  usersMay: "the roles user and admin of the project may",
  adminsMay: "the role admin of the project may",
  adminsAndOwnersMay: "the role admin of the project may, and the owner of the object",
  isNoMember: (who, project, wanted) =>
    who
      ? `${who} is no member of ${project}; ${wanted}. Add ${who} to its members.`
      : `You are no member of ${project}; ${wanted}. Ask its owner to add you.`,
  roleIsNotEnough: (who, role, project, wanted) =>
    `${who || "You"} ${who ? "has" : "have"} the role ${role} in ${project}, which is not enough; ${wanted}.`,
  allowIt: "To allow it",
  changeRole: (project) => `Change the role in the members of the project ${project}`,
  bindRole: "Bind a role to the user or a team",
  sentence: (who, verb, kind, place) => `May ${who} ${verb} ${kind}${place}?`,
  i: "I",
  iWithKey: (name) => `I, with the key "${name}",`,
  isScoped: (name) =>
    `This session uses the access key "${name}", whose scope restricts it. ` +
    "Answers are for requests with this key. Its owner may be allowed more.",
  outOfScope: "The scope of the access key denies it, whatever roles its owner has.",
  keyCalled: (name) => `the key "${name}"`,
  aKey: "a key with this scope",
  inPlace: (namespace) => ` in "${namespace}"`,
  called: (noun, name) => `the ${noun} "${name}"`,
  partOf: (part, object) => `${part} of ${object}`,
  steps: {
    "within scope": "Scope of the access key",
    gateway: "Gateways",
    administrators: "Administrators",
    rbac: "Roles and role bindings",
    "project member": "Members of the project",
    self: "The user itself",
    runner: "Runners",
    agent: "Agents of clusters",
    owner: "Owner and access entries of the object",
    default: "No one allowed it",
    lists: "Lists",
  },
  verdicts: {
    allow: "allows",
    deny: "denies",
    "no opinion": "no opinion",
    "not evaluated": "not asked: already decided",
  },
  whoCan: "Who can?",
  whoCanHint: "Reviews all users, teams and groups.",
  list: "List who can",
  nobody: "No one but administrators.",
  truncated: "There are more than are listed.",
  lists: {
    users: "Users",
    teams: "Teams",
    groups: "Groups",
  },
  mayNotList: "You may not list who can:",
  askProject: "Owner and administrators of the project, who you can ask:",
  askAdmin: "Ask an administrator of this installation.",
  createKey: "Create an access key",
  keyName: "Display name",
  lifetime: "Lifetime",
  likeLogin: "as long as this login",
  outlives: "A key cannot outlive the login that creates it.",
  lifetimes: {
    86400: "a day",
    604800: "a week",
    2592000: "30 days",
    7776000: "90 days",
    0: "does not expire",
  },
  create: "Create",
  scope: "What it may do",
  scopes: {
    all: "Everything I may",
    read: "Read only",
    only: "Only some projects, spaces or clusters",
    raw: "Something else, as YAML",
  },
  yaml: "Scope",
  only: {
    projects: "Project",
    spaces: "Space",
    virtualClusters: "Virtual cluster",
    clusters: "Cluster",
  },
  project: "Project",
  add: "Add",
  remove: "Remove",
  anyName: "name, or * for all",
  cli: "The command-line tool works with it",
  cliHint: "Allows access reviews and lists, reduced to what the key may see.",
  kindOf: "Kind of entry",
  mayNow: "This key may",
  everything: "do everything that its owner may do.",
  nothing: "only say who it is. Choose something.",
  upTo: "Never more than its owner: a role that the owner loses, the key loses at once.",
  scopeWords: {
    projects: ({ project }) =>
      `read ${which(project, "all projects", "the project")}, ` +
      "and do everything inside, also in its spaces and virtual clusters",
    spaces: ({ project, space }) =>
      `do everything with ${which(space, "all spaces", "the space")} of the project "${project || "…"}"`,
    virtualClusters: ({ project, virtualCluster }) =>
      `do everything with ${which(virtualCluster, "all virtual clusters", "the virtual cluster")} ` +
      `of the project "${project || "…"}"`,
    clusters: ({ cluster }) =>
      `read ${which(cluster, "all clusters", "the cluster")}, ` +
      `and use ${cluster === "*" ? "them" : "it"} through the gateway`,
    roles: ({ role }) => (role === "service-cli" ? T.cliWords : `nothing more by the role "${role}"`),
    rules: ({
      verbs = [],
      resources = [],
      resourceNames = [],
      namespaces = [],
      nonResourceURLs = [],
      requestTargets = [],
      cluster,
      virtualClusters = [],
    }) =>
      [
        !verbs.length || verbs.includes("*")
          ? "do everything with"
          : verbs.join() === READ.replaceAll(" ", "")
            ? "read"
            : verbs.join(", "),
        nonResourceURLs.length
          ? quote(nonResourceURLs)
          : resources.length
            ? resources
                .map(
                  (each) =>
                    (each.resources?.length
                      ? each.resources.join(", ")
                      : `everything of the group "${each.group ?? ""}"`) +
                    (each.resourceNames?.length ? ` called ${quote(each.resourceNames)}` : ""),
                )
                .join(", ")
            : "everything",
        resourceNames.length && `called ${quote(resourceNames)}`,
        namespaces.length && `in the namespaces ${quote(namespaces)}`,
        requestTargets.length && `of ${requestTargets.join(", ")}`,
        cluster && `through the cluster "${cluster}"`,
        virtualClusters.length && `through virtual clusters ${quote(virtualClusters.map((each) => each.name || "*"))}`,
      ]
        .filter(Boolean)
        .join(" "),
  },
  cliWords: "make the requests of the command-line tool",
  tester: "Could this key …?",
  created: "The key is created",
  rotated: "The key has a new value",
  once: "This is shown only once, and stored nowhere. Copy it now.",
  value: "Value of the key",
  use:
    "Set it as an environment variable, or store it as a login. Do not write it into a command line: others can " +
    "read those.",
  done: "Done",
  copy: "Copy the key",
  facts: "Key",
  owner: "Owner",
  type: "Type",
  expires: "Expires",
  never: "never",
  sinceUse: "after the last use",
  unlessReplaced: "unless there is another way in by then",
  lastUsed: "Last used",
  notUsed: "not yet",
  isDisabledUser: "Disabled: the user cannot sign in.",
  isDisabled: "Disabled: requests with it are rejected.",
  expired: "Expired: it never works again.",
  isThisLogin: "This browser uses this key.",
  rotate: "Rotate…",
  rotateTitle: "Replace the value of the key",
  overlap: "The old value stays valid for",
  overlaps: {
    0: "no time: revoke it at once",
    3600: "an hour",
    86400: "a day",
    604800: "a week",
  },
  rotateNow: "Rotate",
  cancel: "Cancel",
  disable: "Disable",
  enable: "Enable",
  disableTitle: (name) => `Disable ${name}?`,
  disableKey: "Programs that use it get errors until it is enabled again. Watches end within 10 seconds.",
  disableUser: "The user cannot sign in, and its keys are rejected until it is enabled again.",
  account: "Account",
  lastLogin: "Last used a key or login",
  projects: "Member of projects",
  roles: "Roles on the whole server",
  rolesNotShown: "You may not list who has which roles.",
  noRoles: "None. What the user may do comes from projects, teams and what the user owns.",
  directly: "bound to the user",
  asEveryone: "bound to all users",
  viaGroup: (group) => `through the group ${group}`,
  keys: "Keys",
  hasExpired: "expired",
  isOff: "disabled,",
  logins: (count) => (count === 1 ? "1 login" : `${count} logins`),
  noProjects: "No project that you see has this user as a member.",
  via: (team) => `through the team ${team}`,
  owns: "owner",
  actAs: "Act as this user",
  setPassword: "Set password…",
  passwordOf: (name) => `New password of ${name}`,
  password: "New password",
  passwordHint: "At least 12 characters. All logins of the user are signed out.",
  save: "Save",
  passwordSet: "The password is set",
  members: "Members",
  noMembers: "No members yet.",
  addMember: "Add a member",
  removeOf: (name) => `Remove ${name}`,
  ssoGroups: "Also members: users in these groups of the identity provider",
  fromGroups: "from a group of the identity provider",
  mayNotEdit: "You may not change the members:",
};
