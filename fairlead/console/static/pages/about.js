// Versions of the server and of the console, and where to read on.

import { request, session } from "../core/api.js";
import { API, BUILD } from "../core/base.js";
import { T } from "../texts/shell.js";
import { card, copyable, definition } from "../widgets/common.js";

export async function show(page) {
  page.setTitle(T.about);
  const [platform, api] = await Promise.all([request("version"), request(`${API}/version`)]);
  page.main.append(
    card(
      "Fairlead",
      definition([
        ["Version", platform.version],
        ["Kubernetes API", api.gitVersion],
        ["Console build", BUILD],
        ["Installation", session.installation.id],
        ["API server for kubectl", copyable(location.origin + API)],
        ["Protocol", performance.getEntriesByType("navigation")[0]?.nextHopProtocol],
      ]),
    ),
  );
}
