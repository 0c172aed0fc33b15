// Texts of the pages that create workspaces, spaces, virtual clusters and installed apps.

export const T = {
  title: (kind) => `Create ${kind.toLowerCase()}`, project: "Project", chooseProject: "Choose a project", projectFirst: "Choose a project first.", chooseTarget: "Choose where", noProjects: "You may create none of these in any project. An owner of a project can add you as a member.", template: "Template", app: "App", noTemplates: "The project has no template that you may use.",
  version: "Version", newest: "the newest", unversioned: "unversioned", name: "Name", nameRule: "Lower-case letters, digits and hyphens; it cannot be changed later.", displayName: "Display name", parameters: "Parameters", cluster: "Cluster", clusterHelp: "Where it runs. Cannot be changed later.", noCluster: "none yet", noClusters: "The project has no cluster that you may use.",
  source: "Source", sourceHelp: "A Git repository, such as https://example.com/shop.git. Its devcontainer.json is used, if it has one. Or an image, such as image:debian:12. Without a source, the workspace is created and not started.", branch: "Branch", runner: "Runner", anyRunner: "any", target: "Where to install", space: "Space", virtualCluster: "Virtual cluster", namespace: "Namespace", noTargets: "The project has no space, virtual cluster or cluster that you may use.",
  create: "Create", check: "Check", checked: "Everything is in order. Nothing has been created yet.", allFields: "All fields and YAML", install: "Install",
};
