// Opens a port of a workspace: gets a ticket for the browser, as the user who is signed in, and goes to the host of the
// port. That host has sent the browser here, with a challenge; without one, the browser goes there first.
//
// Any site can have a link to this page. So the page alone wakes nothing up: that takes a click of the user.

import { pause, request } from "../../core/api.js";
import { h, replace } from "../../core/dom.js";
import { managed } from "../../core/kinds.js";
import { namespaceOf } from "../../shell/sign-in.js";
import { T } from "../../texts/workspaces.js";
import { button } from "../../widgets/common.js";
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
  const say = (text) => replace(page.main, h("p", { role: "status" }, text));
  const ask = () =>
    request(kind.path(namespace, name, "portaccess"), {
      method: "POST",
      body: { spec: { port: Number(port), path: path || "/", challenge } },
      signal,
    });
  const showError = (error, retry) => {
    if (!page.scope.ended) replace(page.main, errorBlock(error, { retry }));
  };
  const wake = async () => {
    try {
      say(T.waking);
      await request(kind.path(namespace, name, "up"), { method: "POST", body: { spec: {} }, signal });
      for (let count = 0; count < MAX_WAITS; count += 1) {
        const { status: { lastWorkspaceStatus } = {} } = await request(kind.path(namespace, name), { signal });
        if (lastWorkspaceStatus === "Running") break;
        await pause(WAIT_SECONDS, signal);
      }
      await open();
    } catch (error) {
      showError(error, wake);
    }
  };
  const offerToWake = () =>
    replace(
      page.main,
      h(
        "div.stack",
        h("p", { role: "status" }, T.asleepPort(name, port)),
        h("div.row", button(T.wakeAndOpen, { onclick: wake, kind: "primary" })),
      ),
    );
  const open = async () => {
    try {
      say(T.opening);
      const { status } = await ask();
      if (new URL(status.url).protocol !== "https:") throw new Error(T.badPortAddress);
      location.replace(status.url);
    } catch (error) {
      if (error.code === CONFLICT) offerToWake();
      else showError(error, open);
    }
  };
  await open();
}
