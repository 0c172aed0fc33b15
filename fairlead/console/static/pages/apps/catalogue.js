// The catalogue above the list of apps: what can be installed, as cards.

import { h, replace } from "../../core/dom.js";
import { pathOf } from "../../core/kinds.js";
import { href } from "../../core/router.js";
import { watchList } from "../../core/watch.js";
import { T } from "../../texts/apps.js";
import { linkButton } from "../../widgets/common.js";
import { appIcon } from "./icon.js";

const MAX_CARDS = 60;

export function above({ kind, scope }) {
  const node = h("div.catalogue");
  const filled = new Promise((resolve) =>
    watchList(kind).subscribe(scope, (list) => {
      const apps = list.objects.sort((a, b) =>
        (a.spec?.displayName || a.metadata.name).localeCompare(b.spec?.displayName || b.metadata.name),
      );
      replace(
        node,
        apps.slice(0, MAX_CARDS).map((app) => card(kind, app)),
      );
      resolve();
    }),
  );
  return { node, filled };
}

function card(kind, app) {
  const { metadata, spec = {} } = app;
  const versions = spec.versions?.length ?? 0;
  return h(
    "article.card.app-card",
    appIcon(app),
    h(
      "div.stack",
      h("h2", h("a", { href: href(pathOf(kind, app)) }, spec.displayName || metadata.name)),
      h("p.muted", spec.description || spec.config?.chart?.name || ""),
    ),
    h(
      "div.row",
      h("span.muted", versions ? `${T.versions}: ${versions}` : ""),
      h("span.spring"),
      linkButton(href("appinstances/~new", { app: metadata.name }), T.install, {
        icon: "download",
        "aria-label": `${T.install}: ${spec.displayName || metadata.name}`,
      }),
    ),
  );
}
