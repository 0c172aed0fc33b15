// Browses the objects of a cluster, space or virtual cluster through its gateway, with the pages of any other kind.

import { session } from "../../core/api.js";
import { h, newId, replace } from "../../core/dom.js";
import { listObjects, management, pathOf } from "../../core/kinds.js";
import { href, link, navigate } from "../../core/router.js";
import { T } from "../../texts/clusters.js";
import { button, card, empty, linkButton } from "../../widgets/common.js";
import { errorBlock } from "../../widgets/errors.js";
import { matchKindOf } from "../kind-pages.js";
import { fillCounts } from "./counts.js";
import { openRemote } from "./remote.js";

const GROUPS = {
  workloads: ["pods", "deployments.apps", "statefulsets.apps", "daemonsets.apps", "jobs.batch", "cronjobs.batch"],
  network: ["services", "ingresses.networking.k8s.io", "networkpolicies.networking.k8s.io"],
  configuration: ["configmaps", "secrets", "persistentvolumeclaims"],
  cluster: ["namespaces", "nodes", "events"],
};

export async function show(page, { path, rest }) {
  const owner = path.slice(0, path.indexOf("~browse"));
  const name = owner.at(-1);
  const home = owner.map(encodeURIComponent).join("/");
  const trail = [
    [management.findSegment(owner[0])?.pluralTitle ?? owner[0], owner[0]],
    [name, home],
  ];
  page.setTitle(T.browseTitle, trail);
  let server;
  try {
    server = await openRemote(owner, page.scope.signal);
  } catch (error) {
    if (page.scope.ended) return;
    return replace(
      page.main,
      h(
        "div.stack",
        errorBlock(error, { retry: () => navigate(`${home}/~browse`, { replace: true }) }),
        T.advice[error.code] && h("p", T.advice[error.code]),
        link(home, T.toCluster),
      ),
    );
  }
  if (!rest.length) return showKinds(page, server);
  if (rest[0] === "~new") {
    page.setTitle(T.createTitle, trail);
    return (await import("./create.js")).showCreate(page, server);
  }
  const kind = server.findSegment(rest[0]);
  const found = kind && matchKindOf(kind, rest.slice(1), "clusters");
  if (!found || rest.at(-1) === "~new")
    return replace(page.main, empty(T.noKind(rest[0]), "", link(server.pages, T.browseTitle)));
  const inner = {
    ...page,
    setTitle: (title, crumbs = []) => page.setTitle(title, [...trail, [T.browseTitle, server.pages], ...crumbs]),
  };
  const namespace = found.parameters.namespace || (kind.namespaced ? server.namespace : "") || "";
  const module = await found.load();
  return module.show(inner, {
    ...found.parameters,
    namespace,
    pathOf: (each, object) => server.pages + pathOf(each, object),
  });
}

async function showKinds(page, server) {
  const body = h("div.stack");
  let counting = page.scope.child();
  const isInside = (kind) => kind.isListed && (kind.namespaced || !server.namespace);
  const item = (kind, namespace, title = kind.pluralTitle) =>
    h(
      "li",
      link(
        server.pages + kind.segment + (kind.namespaced && namespace ? `/${encodeURIComponent(namespace)}` : ""),
        title,
      ),
    );
  const fill = (namespace) => {
    const groups = Object.entries(GROUPS)
      .map(([name, segments]) => ({
        name,
        kinds: segments.map((each) => server.findSegment(each)).filter((kind) => kind && isInside(kind)),
      }))
      .filter(({ kinds }) => kinds.length);
    const counted = [];
    const counter = (kind, group) => {
      const node = h("span.counts");
      counted.push({ kind, namespace, node, hasStates: group === "workloads" });
      return node;
    };
    const all = server.kinds.filter(isInside);
    const byGroup = Map.groupBy(all, (kind) => kind.group || T.core);
    replace(
      body,
      h(
        "div.grid",
        groups.map(({ name, kinds }) =>
          card(
            T.groups[name],
            h(
              "ul.plain.counted",
              kinds.map((kind) => {
                const line = item(kind, namespace);
                line.append(counter(kind, name));
                return line;
              }),
            ),
          ),
        ),
      ),
      h(
        "details.card",
        { open: !groups.length },
        h("summary", T.allKinds(all.length)),
        [...byGroup].sort().map(([group, kinds]) => [
          h("h3", group),
          h(
            "ul.plain.kind-links",
            kinds.map((kind) => item(kind, namespace, kind.plural)),
          ),
        ]),
      ),
    );
    counting.end();
    counting = page.scope.child();
    fillCounts(counting, counted);
  };
  const chosen = server.namespace || page.query.get("ns") || "";
  fill(chosen);
  const bar = h("div.row.browse-bar");
  const create = linkButton(href(`${server.pages}~new`), T.createTitle, { icon: "plus" });
  replace(
    page.main,
    h("div.row.browse-head", h("p.muted", T.asYou(session.user?.name || session.user?.username || "")), create),
    bar,
    body,
  );
  if (server.namespace) replace(bar, h("span", `${T.namespace} `, h("code", server.namespace)));
  else if (server.find("namespaces", "")) await chooseNamespace(page, server, bar, chosen, fill);
}

// Who may not list namespaces can still enter one.
async function chooseNamespace(page, server, bar, chosen, fill) {
  const id = newId("namespace");
  const list = await listObjects(server.find("namespaces", ""), { limit: 500, signal: page.scope.signal }).catch(
    (error) => ({ error }),
  );
  if (page.scope.ended) return;
  if (list.error?.code === 403) {
    const input = h("input", { id, value: chosen, spellcheck: "false", autocomplete: "off" });
    const form = h(
      "form.row",
      {
        onsubmit: (event) => {
          event.preventDefault();
          fill(input.value.trim());
        },
      },
      h("label", { for: id }, T.typeNamespace),
      input,
      button(T.go, { type: "submit" }),
    );
    return replace(bar, form);
  }
  if (list.error)
    return replace(bar, errorBlock(list.error), T.advice[list.error.code] && h("p", T.advice[list.error.code]));
  const select = h(
    "select",
    { id, onchange: () => fill(select.value) },
    h("option", { value: "" }, T.allNamespaces),
    list.items.map((each) => h("option", { value: each.metadata.name }, each.metadata.name)),
  );
  select.value = chosen;
  replace(bar, h("label", { for: id }, T.namespace), select);
}
