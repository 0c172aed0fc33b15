// Texts of the settings of the installation.

import { duration } from "../core/time.js";

export const T = {
  title: "Settings", setting: "Setting", value: "Value", standard: "Default", source: "Comes from", save: "Save",
  saveOf: (name) => `Save ${name}`, saved: (name) => `${name} is saved, and in effect`, yes: "yes", no: "no", nothing: "none",
  runTime: "While the server runs",
  runTimeText: "Changes take effect with the next request, without a restart. Settings with several parts are edited as YAML.",
  editYaml: "Edit as YAML", reset: "Use the default", resetOf: (name) => `Use the default of ${name}`,
  fromConfig: "the Config", fromStart: (origin) => `the server's start: ${origin}`, byDefault: "the default",
  entries: (count) => (count ? `${count} ${count === 1 ? "entry" : "entries"}` : "none"),
  seconds: (value) => (value > 0 ? `seconds (${duration(value)})` : "seconds (no limit)"),
  comments: "The YAML has comments. Saving a value here drops them.",
  start: "At the server's start", startText: "These change with a restart: by a flag, a variable, or the settings file.",
  filter: "Filter settings", noMatch: "No setting matches.", how: (flag, variable) => `${flag} or ${variable}`,
  changedBy: (who) => `Changed by ${who}`,
  client: "Client", teams: "Teams",
  connectorId: "Id", issuer: "Issuer", secret: "Secret", redirect: "Redirect URI to register", onlyGroups: "Only these groups", onlyDomains: "Only these email domains", newUsers: "New users", mustExist: "must exist already", areCreated: "are created", rules: "What providers' claims give", noRules: "No rules: claims give no teams and groups.", provider: "Provider", claim: "Claim", groups: "Groups",
};
