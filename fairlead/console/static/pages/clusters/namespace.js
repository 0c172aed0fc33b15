// A namespace of a cluster leads to the objects in it.

import { navigate } from "../../core/router.js";
import { T } from "../../texts/clusters.js";

export const actions = ({ kind, object }) => [
  {
    title: T.browse,
    icon: "grid",
    run: () => navigate(kind.server.pages.replace(/\/$/, ""), { parameters: { ns: object.metadata.name } }),
  },
];
