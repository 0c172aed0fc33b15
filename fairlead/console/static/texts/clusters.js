// Texts of clusters: their page, connecting one, and browsing its objects.

export const T = {
  cards: "Overview of the clusters", state: "State", online: "Online since", offline: "Offline since", version: "Version", nodes: "Nodes", latency: "Latency", milliseconds: (value) => `${value} ms`,
  lastProbe: "Last probe", checks: "Checks", noChecks: "Not checked yet.", notProbed: "This cluster has no kubeconfig, so it is not checked.", failed: "failed", passed: "passed", warning: "warning",
  probes: {
    config: "Kubeconfig is stored and usable", connection: "API server is reachable", credential: "Credential is accepted", version: "Version can be read", readyz: "API server is ready", "kube-system": "Cluster is identified",
    nodes: "Nodes can be counted", impersonation: "Credential may act for users", "impersonation-extra": "Users may impersonate others",
  },
  kubectl: "Use it with kubectl", kubeconfigHint: "Adds a context for this cluster to your kubeconfig:", gateway: "Address of the gateway",
  users: "Who may use it", usersHint: "Everyone with the verb use on this cluster. Projects can allow it, too.",
  inside: "In this cluster", none: "None.", all: (count) => `All ${count}`, browse: "Browse objects",
  connectTitle: "Connect a cluster", clusters: "Clusters", cancel: "Cancel", nameStep: "1. Name", name: "Name", nameHelp: "Lower-case letters, digits and hyphens, such as eu-1. It cannot be changed.", displayName: "Display name", displayNameHelp: "Optional.",
  accessStep: "2. Access", kubeconfig: "Kubeconfig", kubeconfigHelp: "Paste it, or drop a file. The current context is used. It is stored encrypted on the server, and not in this browser.", file: "Choose a file",
  flatten: "Programs and files that a kubeconfig names are not used. This prints one context with everything inside:",
  command: "Or run this where kubectl has access to the cluster", commandHint: "Connects the current context of your kubeconfig. This page can follow the checks.",
  waitFor: "Show the checks",
  checkStep: "3. Checks", connect: "Connect", connecting: "Connecting…", waiting: "The server makes its first checks…", ready: "The cluster is connected.", notReady: "The cluster cannot be used yet.", keepsTrying: "The server checks again every few seconds, and this list follows.",
  another: "Try another kubeconfig", replace: "Replace the kubeconfig", open: "Open the cluster", tooLarge: "This is larger than a kubeconfig can be (256 KB).", missing: "Enter a name and a kubeconfig.",
  exists: (name) => `The cluster ${name} exists already. Choose another name.`, foreign: (secret) => `The Secret ${secret} in service-system exists already and belongs to something else. Choose another name.`,
  denied: "You may not connect clusters", deniedParts: { clusters: "create clusters", secrets: "create Secrets in the namespace service-system" }, deniedText: (parts) => `This needs permission to ${parts.join(" and to ")}.`, notFound: (name) => `The cluster ${name} does not exist yet.`,
  browseTitle: "Browse", namespace: "Namespace", allNamespaces: "All namespaces", typeNamespace: "You may not list namespaces. Enter the name of one:", go: "Show",
  groups: { workloads: "Workloads", network: "Network", configuration: "Configuration", cluster: "Cluster" }, allKinds: (count) => `All ${count} kinds`, core: "core", noKind: (segment) => `The cluster has no kind ${segment}.`,
  asYou: (name) => `You see what ${name} may see in this cluster.`,
  timedOut: (seconds) => `The cluster did not respond within ${seconds} seconds.`, toCluster: "Checks of the cluster",
  advice: {
    403: "Permissions in a cluster are granted there, by role bindings for your user or teams. To use it at all, you need the verb use.", 404: "It does not exist, or you may not see it.", 429: "Close other tabs that follow this cluster.",
    502: "The cluster rejects the connection or the stored credential. Its checks say why.", 503: "The cluster is unreachable or not connected. Its checks say why.", 504: "The cluster did not respond in time. Try again.",
  },
  pods: "Pods", noPods: "No pods.", containers: "Container", logs: "Logs", terminal: "Terminal", start: "Open a terminal", shell: "Command", restarts: "Restarts", node: "Node", status: "Status", age: "Age",
};
