// Labels and annotations: shown, added and removed, one patch for each change.

import { h, newId, replace } from "../core/dom.js";
import { patchObject } from "../core/kinds.js";
import { T } from "../texts/object.js";
import { guardAction } from "./access.js";
import { button } from "./common.js";
import { errorBlock } from "./errors.js";

// `field` is "labels" or "annotations".
export function keyValues(context, field) {
  const {
    kind,
    object: { metadata },
  } = context;
  const question = { verb: "patch", kind, namespace: metadata.namespace, name: metadata.name };
  const error = h("div");
  const change = async (key, value) => {
    try {
      await patchObject(
        kind,
        metadata.namespace,
        metadata.name,
        { metadata: { [field]: { [key]: value } } },
        { signal: context.scope.signal },
      );
      context.refresh();
      replace(error);
      return true;
    } catch (failure) {
      replace(error, errorBlock(failure));
    }
  };
  const entries = Object.entries(metadata[field] ?? {}).map(([key, value]) => {
    const remove = button("×", {
      kind: "quiet",
      "aria-label": T.remove(key),
      title: T.remove(key),
      onclick: () => change(key, null),
    });
    guardAction(remove, question);
    return h(
      "li",
      h("span.mono", h("span.muted", key), field === "labels" ? "=" : ": ", h("span.wrap", value)),
      remove,
    );
  });
  return h(
    "div.stack.tight",
    entries.length ? h(`ul.${field}`, entries) : h("p.muted", T.none),
    adder(field, question, change),
    error,
  );
}

function adder(field, question, change) {
  const title = field === "labels" ? T.addLabel : T.addAnnotation;
  const [key, value] = [T.key, T.value].map((label) =>
    h("input", {
      "aria-label": `${title}: ${label}`,
      placeholder: label,
      id: newId("input"),
      required: label === T.key,
    }),
  );
  const form = h(
    "form.row",
    {
      hidden: true,
      onsubmit: async (event) => {
        event.preventDefault();
        if (await change(key.value.trim(), value.value)) {
          form.hidden = true;
          open.hidden = false;
          form.reset();
          open.focus();
        }
      },
    },
    key,
    value,
    h("button", { type: "submit" }, T.add),
  );
  form.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      form.hidden = true;
      open.hidden = false;
      open.focus();
    }
  });
  const open = button(title, {
    kind: "quiet",
    icon: "plus",
    onclick: () => {
      form.hidden = false;
      open.hidden = true;
      key.focus();
    },
  });
  guardAction(open, question);
  return h("div", open, form);
}
