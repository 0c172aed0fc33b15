// Who signed in with an access key, and has no password, is offered to set one: the key may be lost, or expire.

import { request, session } from "../core/api.js";
import { h, replace } from "../core/dom.js";
import { managed } from "../core/kinds.js";
import { T } from "../texts/sign-in.js";
import { button, field } from "../widgets/common.js";
import { errorBlock } from "../widgets/errors.js";
import { openDialog, toast } from "./dialogs.js";

export function passwordOffer() {
  if (!session.canSetPassword) return null;
  const node = h("section.offer", { "aria-label": T.setPassword }, h("p", T.offer));
  const close = () => {
    session.canSetPassword = false;
    node.remove();
  };
  const open = async () => {
    if (await askPassword()) close();
  };
  node.append(button(T.setPassword, { kind: "primary", onclick: open }), button(T.notNow, { onclick: close }));
  return node;
}

const askPassword = () =>
  openDialog({
    title: T.setPassword,
    body: (close) => {
      const newField = (name) =>
        h("input", { name, type: "password", autocomplete: "new-password", required: true, minlength: 12 });
      const next = newField("next");
      const again = newField("again");
      const problem = h("div");
      const submit = h("button.primary", { type: "submit" }, T.setPassword);
      again.addEventListener("input", () => again.setCustomValidity(""));
      const onsubmit = async (event) => {
        event.preventDefault();
        again.setCustomValidity(next.value === again.value ? "" : T.notEqual);
        if (!again.reportValidity()) return;
        submit.disabled = true;
        replace(problem);
        try {
          await request(managed("users").path("", session.user.name, "profile"), {
            method: "POST",
            body: { password: next.value },
          });
          toast(T.passwordSet);
          close(true);
        } catch (error) {
          replace(problem, errorBlock(error));
        } finally {
          submit.disabled = false;
        }
      };
      return h(
        "form",
        { onsubmit },
        h("input", {
          type: "text",
          name: "username",
          autocomplete: "username",
          value: session.user.loginName,
          hidden: true,
        }),
        field(T.newPassword, next, T.passwordRule),
        field(T.repeatPassword, again),
        problem,
        submit,
      );
    },
  });
