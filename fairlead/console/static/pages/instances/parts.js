// What differs between the kinds of instances when they are created: what they are made from, and where they run.

import { can } from "../../core/access.js";
import { request, session } from "../../core/api.js";
import { h } from "../../core/dom.js";
import { listObjects, managed } from "../../core/kinds.js";
import { SLEEP } from "../../core/sleep.js";
import { duration } from "../../core/time.js";
import { T } from "../../texts/instances.js";
import { field } from "../../widgets/common.js";

const MAX_APPS = 500;
// In seconds.
const SLEEP_CHOICES = [1800, 3600, 7200, 28800, 86400];

export const options = (entries, selected) =>
  entries.map(([value, label]) => h("option", { value, selected: value === selected }, label));
const sleepChoice = (seconds) => [String(seconds), duration(seconds)];
const projectPart = (project, part, signal) => request(managed("projects").path("", project, part), { signal });
const titled = (objects = []) =>
  objects.map(({ metadata, spec }) => [metadata.name, spec?.displayName || metadata.name]);

// The template of the address, else the default of the project, else the one that a new server creates.
const preferredTemplate = (query, ofProject) => query.get("template") ?? (ofProject || "default");

// Spaces and virtual clusters: a template of the project, and one of its clusters.
const inCluster = (plural, fallback) => ({
  offerTitle: T.template,
  submit: T.create,
  reference: "templateRef",
  hasUnversioned: (offer) => Boolean(offer?.spec?.template),
  async load({ project, query, signal }) {
    const [templates, places] = await Promise.all([
      projectPart(project, "templates", signal),
      projectPart(project, "clusters", signal),
    ]);
    const clusters = titled(places.clusters);
    // Without a cluster it would wait for ever.
    const usual = places.clusters?.find((each) => each.status?.online !== false) ?? places.clusters?.[0];
    const select = h("select", options([["", T.noCluster], ...clusters], query.get("cluster") ?? usual?.metadata.name));
    const sleep = h("select", options([["", T.asTemplateSays], ...SLEEP_CHOICES.map(sleepChoice)]));
    const sleepField = field(T.sleepAfter, sleep, T.sleepAfterHelp);
    return {
      offers: templates[plural] ?? [],
      preferred: preferredTemplate(query, templates[fallback]),
      place: {
        node: h("div", field(T.cluster, select, clusters.length ? T.clusterHelp : T.noClusters), sleepField),
        // A template with a parameter for it asks for the time itself.
        follow: (parameters) => {
          sleepField.hidden = parameters.some(({ variable }) => variable === "sleepAfter");
        },
        read: () => ({
          metadata: sleep.value && !sleepField.hidden ? { annotations: { [`${SLEEP}sleep-after`]: sleep.value } } : {},
          spec: select.value ? { clusterRef: { cluster: select.value } } : {},
        }),
      },
    };
  },
});

// Workspaces: a template of the project, a source, and a runner.
const workspace = {
  offerTitle: T.template,
  submit: T.create,
  reference: "templateRef",
  hasUnversioned: (offer) => Boolean(offer?.spec?.template),
  async load({ project, query, signal }) {
    const [templates, places] = await Promise.all([
      projectPart(project, "templates", signal),
      projectPart(project, "runners", signal),
    ]);
    const source = h("input", {
      value: query.get("source") ?? "",
      placeholder: "https://",
      autocomplete: "off",
      spellcheck: "false",
    });
    const branch = h("input", { value: query.get("branch") ?? "", autocomplete: "off", spellcheck: "false" });
    const runner = h("select", options([["", T.anyRunner], ...titled(places.runners)], query.get("runner") ?? ""));
    return {
      offers: templates.devPodWorkspaceTemplates ?? [],
      preferred: preferredTemplate(query, templates.defaultDevPodWorkspaceTemplate),
      place: {
        node: h("div", field(T.source, source, T.sourceHelp), field(T.branch, branch), field(T.runner, runner)),
        read: () => ({
          metadata: source.value.trim()
            ? {
                annotations: {
                  "service.sh/workspace-up": "1",
                  "service.sh/workspace-source": encodeSource(source.value.trim(), branch.value.trim()),
                },
              }
            : {},
          spec: { ...creatorAsOwner(), ...(runner.value && { runnerRef: { runner: runner.value } }) },
        }),
      },
    };
  },
};

// The server sets the owner of other instances, and that of workspaces only for members of the project.
function creatorAsOwner() {
  const { name, groups } = session.user;
  const kind = ["user", "team"].find((each) => groups.includes(`service:${each}:${name}`));
  return kind ? { owner: { [kind]: name } } : {};
}

// As `fairlead workspace create` writes it: git:URL[@BRANCH], image:NAME.
function encodeSource(text, branch) {
  if (/^(image|local):/.test(text)) return text;
  const source = text.replace(/^git:/, "");
  const url = /^[a-z0-9.-]+\.[a-z]+(:\d+)?\//i.test(source) ? `https://${source}` : source;
  return `git:${url}${branch && `@${branch}`}`;
}

// Installed apps: an App, and a place in the project.
const app = {
  offerTitle: T.app,
  submit: T.install,
  reference: "appRef",
  hasUnversioned: (offer) => Boolean(offer?.spec?.config),
  async load({ project, namespace, query, signal }) {
    const spaces = await listed("spaceinstances", namespace, signal);
    const virtual = await listed("virtualclusterinstances", namespace, signal);
    const clusters = (await projectPart(project, "clusters", signal)).clusters ?? [];
    const apps = await listObjects(managed("apps"), { limit: MAX_APPS, signal });
    const group = (label, kind, objects) =>
      objects.length > 0 &&
      h(
        "optgroup",
        { label },
        options(
          titled(objects).map(([name, title]) => [`${kind}/${name}`, title]),
          query.get("target") ?? "",
        ),
      );
    const isOneOfMany = spaces.length + virtual.length + clusters.length > 1;
    const target = h(
      "select",
      { required: true },
      isOneOfMany && options([["", T.chooseTarget]]),
      group(T.space, "spaceInstance", spaces),
      group(T.virtualCluster, "virtualClusterInstance", virtual),
      group(T.cluster, "cluster", clusters),
    );
    const inside = h("input", { autocomplete: "off", spellcheck: "false" });
    const insideField = field(T.namespace, inside);
    const update = () => {
      insideField.hidden = target.value.startsWith("spaceInstance/");
    };
    target.addEventListener("change", update);
    update();
    return {
      offers: apps.items,
      preferred: query.get("app"),
      place: {
        node: h("div", field(T.target, target, target.options.length ? "" : T.noTargets), insideField),
        read: () => {
          const [kind, name] = target.value.split("/");
          return {
            spec: name
              ? {
                  target: { [kind]: { name, ...(inside.value && !insideField.hidden && { namespace: inside.value }) } },
                }
              : {},
          };
        },
      },
    };
  },
};

async function listed(plural, namespace, signal) {
  const kind = managed(plural);
  return (await can("list", kind, namespace))
    ? (await listObjects(kind, { namespace, limit: MAX_APPS, signal })).items
    : [];
}

export const PARTS = {
  spaceinstances: inCluster("spaceTemplates", "defaultSpaceTemplate"),
  virtualclusterinstances: inCluster("virtualClusterTemplates", "defaultVirtualClusterTemplate"),
  devpodworkspaceinstances: workspace,
  appinstances: app,
};
