// Says when the page is not live: the browser is offline, or the server does not respond. A short gap is not shown.

import { h } from "../core/dom.js";
import { staleLists } from "../core/watch.js";
import { T } from "../texts/shell.js";

export function connectionState() {
  const word = h("span");
  const node = h("span.connection", { role: "status" }, h("span.dot", { "aria-hidden": "true" }), word);
  const update = () => {
    const isOffline = !navigator.onLine;
    const isStale = isOffline || staleLists() > 0;
    node.classList.toggle("stale", isStale);
    const text = isOffline ? T.offline : isStale ? T.reconnecting : T.live;
    if (word.textContent !== text) word.textContent = text;
  };
  update();
  setInterval(update, 1000);
  window.addEventListener("online", update);
  window.addEventListener("offline", update);
  return node;
}
