// The fields of an object as a readable tree, for any kind. Values of secrets are hidden until asked for, and never
// changed.

import { h, replace } from "../core/dom.js";
import { sentence } from "../core/kinds.js";
import { timeElement } from "../core/time.js";
import { T } from "../texts/object.js";
import { isSecret } from "./access.js";
import { button, copyButton } from "./common.js";

const MAX_ENTRIES = 100;
const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/;

// `schema` is what loadSchema returns, and `resolve` follows its references; both may be missing.
export function fieldTree(kind, value, path, { schema, resolve } = {}) {
  const follow = (part) => (part && resolve ? resolve(part, schema.document) : undefined);
  const inner = (part, key) =>
    follow(Array.isArray(key) ? part?.items : (part?.properties?.[key] ?? part?.additionalProperties));
  const tree = (each, part, at) => {
    if (each === null || typeof each !== "object") return scalar(each);
    const entries = Object.entries(each);
    if (!entries.length) return h("span.muted", T.emptyValue);
    const isList = Array.isArray(each);
    if (isList && entries.every(([, item]) => item === null || typeof item !== "object"))
      return h(
        "ul.values",
        entries.slice(0, MAX_ENTRIES).map(([, item]) => h("li", scalar(item))),
        more(entries),
      );
    const hides = isSecret(kind) && /(^|\.)(data|stringData)$/.test(at);
    return h(
      "dl.tree",
      entries.slice(0, MAX_ENTRIES).map(([key, item]) => {
        const next = inner(part, isList ? [] : key);
        const name = isList
          ? `${Number(key) + 1}.`
          : part?.properties || !schema
            ? sentence(key.charAt(0).toUpperCase() + key.slice(1))
            : key;
        const isBranch =
          item &&
          typeof item === "object" &&
          Object.keys(item).length > 0 &&
          !(Array.isArray(item) && typeof item[0] !== "object");
        return h(
          isList ? "div.item" : isBranch ? "div.branch" : "div",
          h(
            "dt",
            { title: isList ? null : [at ? `${at}.${key}` : key, next?.description].filter(Boolean).join("\n") },
            name,
          ),
          h("dd", hides && typeof item === "string" ? secretValue(item) : tree(item, next, `${at}.${key}`)),
        );
      }),
      more(entries),
    );
  };
  return tree(value, path ? follow(schema?.properties?.[path]) : schema, path);
}

const more = (entries) => entries.length > MAX_ENTRIES && h("div.muted", T.moreValues(entries.length - MAX_ENTRIES));

function scalar(value) {
  if (value === "" || value === null) return h("span.muted", value === null ? "null" : T.emptyValue);
  if (typeof value !== "string") return h("code", String(value));
  if (TIME.test(value)) return timeElement(value);
  return value.includes("\n") ? h("pre", value) : h("span", value);
}

function secretValue(encoded) {
  const bytes = readBytes(encoded);
  const shown = h("span");
  const toggle = button(T.showValue, {
    kind: "quiet",
    "aria-expanded": "false",
    onclick: () => {
      const show = !shown.firstChild;
      const { text, isText } = show ? decode(bytes, encoded) : {};
      replace(shown, show && [h("pre", text), !isText && h("span.muted", T.notText)]);
      toggle.textContent = show ? T.hideValue : T.showValue;
      toggle.setAttribute("aria-expanded", String(show));
    },
  });
  return h(
    "div.row",
    h("span.muted", `•••••• ${T.bytes(bytes?.length ?? encoded.length)}`),
    toggle,
    copyButton(() => decode(bytes, encoded).text),
    shown,
  );
}

function readBytes(encoded) {
  try {
    return Uint8Array.from(atob(encoded), (each) => each.charCodeAt(0));
  } catch {
    return null;
  }
}

function decode(bytes, encoded) {
  try {
    return { text: new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes), isText: true };
  } catch {
    return { text: encoded, isText: false };
  }
}
