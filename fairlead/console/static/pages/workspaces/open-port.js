// Opens a port of a workspace: gets a ticket for the browser, as the user who is signed in, and goes to the host of the
// port. That host has sent the browser here, with a challenge; without one, the browser goes there first.

import { pause, request } from "../../core/api.js";
import { h, replace } from "../../core/dom.js";
import { managed } from "../../core/kinds.js";
import { namespaceOf } from "../../shell/sign-in.js";
import { T } from "../../texts/workspaces.js";
import { errorBlock } from "../../widgets/errors.js";

const CONFLICT = 409;
const WAIT_SECONDS = 2;
const MAX_WAITS = 150;

export async function show(page) {
  const { signal } = page.scope;
  const [project, name, port, path, challenge] = ["project", "workspace", "port", "path", "challenge"].map(
    (each) => page.query.get(each) ?? "",
  );
  const kind = managed("devpodworkspaceinstances");
  const namespace = namespaceOf(project);
  page.setTitle(T.openPortTitle(port, name));
  const status = h("p", { role: "status" }, T.opening);
  replace(page.main, status);
  const ask = () =>
    request(kind.path(namespace, name, "portaccess"), {
      method: "POST",
      body: { spec: { port: Number(port), path: path || "/", challenge } },
      signal,
    });
  const wake = async () => {
    replace(status, T.waking);
    await request(kind.path(namespace, name, "up"), { method: "POST", body: { spec: {} }, signal });
    for (let count = 0; count < MAX_WAITS; count += 1) {
      const { status: { lastWorkspaceStatus } = {} } = await request(kind.path(namespace, name), { signal });
      if (lastWorkspaceStatus === "Running") return;
      await pause(WAIT_SECONDS, signal);
    }
  };
  const open = async () => {
    try {
      const {
        status: { url },
      } = await ask().catch(async (error) => {
        if (error.code !== CONFLICT) throw error;
        await wake();
        return ask();
      });
      if (new URL(url).protocol !== "https:") throw new Error(T.badPortAddress);
      location.replace(url);
    } catch (error) {
      if (!page.scope.ended) replace(page.main, errorBlock(error, { retry: open }));
    }
  };
  await open();
}
