// Texts of the pages that create workspaces, spaces, virtual clusters and installed apps.

export const T = {
  title: (kind) => `New ${kind.toLowerCase()}`, project: "Project", noProjects: "You may create none of these in any project. An owner of a project can add you as a member.", template: "Template", app: "App", noTemplates: "The project has no template that you may use.", withoutTemplate: "Without a template",
  version: "Version", newest: "the newest", unversioned: "unversioned", name: "Name", nameRule: "Lower-case letters, digits and dashes; it cannot be changed later.", displayName: "Display name", parameters: "Parameters", cluster: "Cluster", clusterHelp: "Where it runs. Cannot be changed later.", templateDecides: "as the template says", noClusters: "The project has no cluster that you may use.",
  source: "Source", sourceHelp: "A Git repository, such as https://example.com/shop.git. Its devcontainer.json is used, if it has one. Or an image, such as image:debian:12. Without a source, the workspace is created and not started.", branch: "Branch", image: "or an image", runner: "Runner", anyRunner: "any", target: "Where to install", space: "Space", virtualCluster: "Virtual cluster", namespace: "Namespace", noTargets: "The project has no space, virtual cluster or cluster that you may use.",
  create: "Create", check: "Check", checked: "Everything is in order. Nothing has been created yet.", allFields: "All fields and YAML", cancel: "Cancel", install: "Install", required: "This is required.",
};
