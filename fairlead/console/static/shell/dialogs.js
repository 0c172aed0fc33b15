// Dialogs, short notices, and the live region that screen readers follow.

import { h, newId, replace, Scope } from "../core/dom.js";
import { T } from "../texts/shell.js";
import { button } from "../widgets/common.js";

const region = h("div.visually-hidden", { role: "status", "aria-live": "polite" });
export const liveRegion = () => region;
export const announce = (text) => {
  region.textContent = text;
};

// `build(close, scope)` returns the content; `close(value)` ends the dialog and resolves the promise of openDialog.
// Escape and the close button resolve to undefined.
export function openDialog({ title, body, actions = [], wide = false }) {
  return new Promise((resolve) => {
    const scope = new Scope();
    const id = newId("dialog");
    const opener = document.activeElement;
    const dialog = h("dialog", { "aria-labelledby": id, data: wide ? { wide: "" } : {} });
    const close = (value) => {
      if (scope.ended) return;
      scope.end();
      dialog.close();
      dialog.remove();
      opener?.focus?.();
      resolve(value);
    };
    dialog.addEventListener("cancel", (event) => {
      event.preventDefault();
      close();
    });
    const content = typeof body === "function" ? body(close, scope) : body;
    const buttons = actions.map(({ title: label, kind, run, focus }) =>
      button(label, { kind, autofocus: focus, onclick: () => (run ? run(close) : close()) }),
    );
    replace(
      dialog,
      h(
        "header",
        h("h2", { id }, title),
        h("button.quiet", { type: "button", "aria-label": T.close, onclick: () => close() }, "×"),
      ),
      h("div.dialog-body", content),
      buttons.length > 0 && h("footer", buttons),
    );
    document.body.append(dialog);
    dialog.showModal();
  });
}

export const confirmDialog = ({ title, text, confirm, cancel = T.cancel, danger = false }) =>
  openDialog({
    title,
    body: h("p", text),
    actions: [
      { title: cancel, focus: danger },
      { title: confirm, kind: danger ? "danger" : "primary", focus: !danger, run: (close) => close(true) },
    ],
  });

// For finished background work, and for warnings about it, which stay; errors are shown beside their cause.
export function toast(text, { content = h("span", text), stays = false } = {}) {
  let stack = document.querySelector(".toasts");
  if (!stack) document.body.append((stack = h("div.toasts")));
  const node = h(
    "div.toast",
    content,
    h("button.quiet", { type: "button", "aria-label": T.close, onclick: () => node.remove() }, "×"),
  );
  stack.append(node);
  announce(text);
  if (!stays) setTimeout(() => node.remove(), 6000);
}
