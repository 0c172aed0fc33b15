// Texts of apps.

export const T = {
  install: "Install", readme: "Readme", noReadme: "The app has no readme.", versions: "Versions", chart: "Chart", repository: "Repository", parameters: (count) => `${count} ${count === 1 ? "parameter" : "parameters"}`, recommended: "Recommended for",
  release: "Release", revision: "Revision", deployed: "Deployed", target: "Where", app: "App", notes: "Notes", history: "History", rollBack: "Roll back", rollBackTo: (revision) => `Roll back to revision ${revision}`, rolledBack: "The earlier version is being deployed", drift: "Changed from outside", version: "Version", unversioned: "unversioned",
};
