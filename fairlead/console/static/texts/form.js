// Texts of forms, and of the pages that create and edit objects.

export const T = {
  required: "Required.", immutable: "(cannot be changed)", choose: "Choose…", notSet: "Not set", reveal: "Show", unchanged: "unchanged", removed: "will be removed",
  removePassword: "Remove stored value", integer: "Enter a whole number.", number: "Enter a number.", open: "YAML or JSON", key: "Key", value: "Value",
  pattern: (pattern) => `Must match ${pattern}`,
  range: (low, high) => (high === undefined || high === null ? `Must be at least ${low}.` : low === undefined || low === null ? `Must be at most ${high}.` : `Must be from ${low} to ${high}.`),
  invalidYaml: (message) => `Not valid: ${message}`,
  more: (count) => `More fields (${count})`,
  add: "+ Add", addEntry: (label) => `+ Add to ${label.toLowerCase()}`,
  removeEntry: (label, number) => `Remove entry ${number} of ${label.toLowerCase()}`,
  entry: (label, number) => `${label} ${number}`,
  keyOf: (label, number) => `Key ${number} of ${label.toLowerCase()}`,
  duplicate: (key) => `The key ${key} appears twice.`,
  otherProblems: "The server reports:", metadata: "Labels and annotations of the object.",

  create: (title) => `Create ${title.charAt(0).toLowerCase()}${title.slice(1)}`, createButton: "Create", check: "Check", checking: "Checking…", cancel: "Cancel",
  name: "Name", nameHelp: "Lower-case letters, digits and hyphens.", nameRule: "Use lower-case letters, digits, “-” and “.”, with a letter or digit first and last.", nameLong: "At most 253 characters.",
  generate: "Append a random suffix", project: "Project", namespace: "Namespace", projectMissing: "Choose a project.", noProjects: "There is no project in which you may create this.",
  form: "Form", yaml: "YAML", yamlLabel: "YAML of the object", readByServer: "The server read this text. It never returns passwords: enter them again.",
  valid: (name) => `The server would accept ${name} as it is now. Nothing was stored.`,
  created: (name) => `${name} was created.`, shownOnce: "These values are shown only now. Store them before you leave.", result: "Result", openObject: "Open", fix: "Correct the marked fields.",

  save: "Save", saved: "Saved.", noChanges: "Nothing has changed.", discard: "Discard changes", readOnly: "You may read this object, but not change it.",
  conflict: "This object has changed since you opened the form.", theirs: "Changed by others", both: "Changed by both: saving replaces the other value", reapply: "Keep my changes, on the new version",

  parameters: "Parameters", defaultIs: (value) => `Default: ${value}`, options: (values) => `Must be one of: ${values.join(", ")}`, invalid: (pattern) => `Must not match ${pattern}`, parameterText: "Values for the parameters of the template, one `name: value` a line.",
};
