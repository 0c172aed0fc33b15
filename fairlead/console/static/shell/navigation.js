// The navigation on the left: what the user may list, with the number of objects.

import { review } from "../core/access.js";
import { request } from "../core/api.js";
import { API, GROUP } from "../core/base.js";
import { h, replace } from "../core/dom.js";
import { managed, management } from "../core/kinds.js";
import { href } from "../core/router.js";
import { T } from "../texts/shell.js";
import { icon } from "../widgets/common.js";
import { SECTIONS } from "./sections.js";

const COUNT_SECONDS = 30;

// Entries of the navigation with their kind and path; entries of kinds that the server does not have are left out.
export function listEntries() {
  return SECTIONS.map((section) => ({ ...section, entries: section.entries.map(resolve).filter(Boolean) })).filter(
    (section) => section.entries.length,
  );
}

function resolve(entry) {
  if (entry.page !== undefined) return { ...entry, path: entry.page };
  const kind = management.find(entry.kind, entry.group ?? GROUP);
  return kind && { ...entry, kind, path: kind.segment, title: kind.pluralTitle };
}

export function navigation() {
  const node = h("nav.navigation", { id: "navigation", "aria-label": T.navigation });
  const counts = new Map();
  replace(
    node,
    listEntries().map((section) =>
      h(
        "section",
        section.title && h("h2", section.title),
        h(
          "ul",
          section.entries.map((entry) => item(entry, counts)),
        ),
      ),
    ),
  );
  const update = () => !document.hidden && showCounts(counts);
  update();
  setInterval(update, COUNT_SECONDS * 1000);
  document.addEventListener("visibilitychange", update);
  return node;
}

export async function mayShow({ kind, reads }) {
  const needed = kind ?? (reads && managed(reads));
  return !needed || (await review({ verb: "list", kind: needed })).allowed;
}

function item(entry, counts) {
  const count = h("span.count");
  const anchor = h(
    "a",
    { href: href(entry.path), "aria-keyshortcuts": entry.keys },
    icon(entry.icon),
    h("span.name", entry.title),
    count,
  );
  const node = h("li", anchor);
  if (entry.kind) counts.set(`${entry.kind.group}/${entry.kind.plural}`, count);
  // Until the review has answered, the entry is shown: "pending" is not "denied".
  mayShow(entry).then((isAllowed) => {
    node.hidden = !isAllowed;
  });
  return node;
}

async function showCounts(nodes) {
  try {
    const list = await request(`${API}/apis/${GROUP}/v1/resourcecounts`);
    for (const item of list.items) {
      const { group = "", resource, count } = item.status ?? item;
      const node = nodes.get(`${group}/${resource}`);
      if (node) node.textContent = count ? String(count) : "";
    }
  } catch {
    /* the navigation works without numbers */
  }
}
