// The texts of lists and tables.

const number = (value) => value.toLocaleString();

export const T = {
  number,
  name: "Name",
  project: "Project",
  label: "label",
  yes: "Yes",
  no: "No",
  projectColumn: "The project of the object, or its namespace if that is not the namespace of a project.",
  namespace: "Namespace",
  namespaceColumn: "The namespace of the object.",
  namespaceOf: (namespace) => `Namespace ${namespace}, which belongs to no project`,
  labelColumn: (key) => `The label ${key}`,
  not: {
    Online: "Offline",
  },
  browser: (browser, system) =>
    [
      browser ?? "Browser",
      system && `on ${system}`,
    ]
      .filter(Boolean)
      .join(" "),
  notState: (word) => `Not ${word.toLowerCase()}`,
  deleting: "Deleting",
  deletingMark: "deleting",
  waitsFor: (finalizers) => `waits for ${finalizers}`,
  view: "View",
  columns: "Columns",
  addLabel: "Add a label column",
  allColumns: "All columns",
  resetColumns: "Default columns",
  sortBy: "Sort by",
  compact: "Compact rows",
  select: "Select",
  selectAll: "Select all rows that match",
  filterHint: "Filter: text, app=web",
  filterHelp:
    "Text is searched in all columns and labels. label=value and field:status.phase=Ready are selectors, which the " +
    "server applies.",
  filterLabel: (kinds) => `Filter ${kinds}`,
  allProjects: "All projects",
  projectFilter: "Project",
  allNamespaces: "All namespaces",
  namespaceFilter: "Namespace",
  create: (kind) => `Create ${kind}`,
  connect: "Connect cluster",
  mayNotCreate: (kinds) => `You may not create ${kinds}. The page "May I?" says why.`,
  count: (shown, all, kinds) =>
    shown === all ? `${number(all)} ${kinds}` : `${number(shown)} of ${number(all)} ${kinds}`,
  announceCount: (shown, all, kinds) =>
    shown === all ? `${number(all)} ${kinds}` : `${number(shown)} of ${number(all)} ${kinds} match`,
  loadingMore: "loading…",
  stale: "Connection lost: this may be out of date",
  showOnly: (word) => `Show only ${word}`,
  selected: (count) => `${number(count)} selected`,
  unfit: (count) => `${number(count)} of them are being deleted already and are left out.`,
  remove: "Delete",
  copyNames: "Copy names",
  exportCsv: "Export CSV",
  clear: "Clear",
  clearFilter: "Clear the filter",
  copied: (count) => `Copied ${number(count)} names`,
  noneTitle: (kinds) => `There are no ${kinds} yet`,
  makeFirst: (kind) => `Make the first ${kind} here, or with kubectl apply -f FILE.`,
  askOthers: "You may not create one here: ask an owner of the project, or an administrator.",
  noneExist: (kinds) => `You may see all ${kinds}, and none exist.`,
  noneForYou: (kinds, project) => `There are no ${kinds}${project ? ` in ${project}` : ""} that you may see`,
  onlyPermitted: (kinds) => `You see only the ${kinds} that you own, or that others share with you. There may be more.`,
  onlyYours: {
    projects: "You see the projects that you are a member of. Ask an owner of a project to add you.",
  },
  whyNot: "Why may I not create one?",
  noneInProject: (kinds, project) => `There are no ${kinds} in ${project}`,
  noMatchTitle: (kinds) => `No ${kinds} match the filter`,
  noMatchText: (count) => `${number(count)} are hidden by it.`,
  noMatchSelector: "The server found none with these selectors.",
  forbiddenTitle: (kinds) => `You may not list ${kinds}`,
  forbiddenText: (message) => `The server says: ${message}`,
};
