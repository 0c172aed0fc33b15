// An app: its readme, chart, versions and parameters.

import { h } from "../../core/dom.js";
import { navigate } from "../../core/router.js";
import { T } from "../../texts/apps.js";
import { card, definition } from "../../widgets/common.js";
import { markdown } from "../../widgets/markdown.js";
import { appIcon } from "./icon.js";

export function summary(context) {
  return context.live(
    ({ spec }) => spec,
    (app) => {
      const { spec = {} } = app;
      const chart = spec.config?.chart ?? {};
      return h(
        "div.app",
        card(
          "",
          h("div.row", appIcon(app), h("p", spec.description)),
          definition([
            [T.chart, chart.name],
            [T.version, chart.version],
            [T.repository, chart.repoURL],
            [T.versions, spec.versions?.map((each) => each.version).join(", ")],
            ["", spec.parameters?.length > 0 && T.parameters(spec.parameters.length)],
            [T.recommended, spec.recommendedApp?.join(", ")],
          ]),
        ),
        h("section.card", h("h2", T.readme), spec.readme ? markdown(spec.readme) : h("p.muted", T.noReadme)),
      );
    },
  );
}

export const actions = ({ object }) => [
  {
    title: T.install,
    icon: "download",
    primary: true,
    run: () => navigate("appinstances/~new", { parameters: { app: object.metadata.name } }),
  },
];
