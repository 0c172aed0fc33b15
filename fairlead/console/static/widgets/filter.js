// Filter as you type. Words search the rows of the page; `label=value` and `field:path=value` are selectors, which the
// server applies.

import { h } from "../core/dom.js";
import { T } from "../texts/list.js";
import { icon } from "./common.js";

const SELECTOR_DELAY = 400;
const LABEL = /^!?[A-Za-z0-9][\w.-]*(\/[\w.-]+)?(=|==|!=)[\w.-]*$/;
const TOKEN = /"([^"]*)"?|\S+/g;

// "web app=shop field:status.phase=Ready" -> {words: ["web"], q: "web", labels: "app=shop", fields:
// "status.phase=Ready"}
export function parseFilter(text) {
  const found = { words: [], labels: [], fields: [], raw: [] };
  for (const [token, quoted] of text.matchAll(TOKEN)) {
    if (quoted === undefined && token.startsWith("field:")) found.fields.push(token.slice(6));
    else if (quoted === undefined && LABEL.test(token)) found.labels.push(token);
    else if ((quoted ?? token) !== "") {
      found.words.push((quoted ?? token).toLowerCase());
      found.raw.push(token);
    }
  }
  return {
    words: found.words,
    q: found.raw.join(" "),
    labels: found.labels.join(","),
    fields: found.fields.filter((each) => /=./.test(each)).join(","),
  };
}

const split = (selector) => (selector ?? "").split(/,(?![^(]*\))/).filter(Boolean);

// The text of a filter whose parts are in the URL. Selectors that cannot be typed, like `a in (b)`, are not part of it.
export const printFilter = ({ q, labels, fields }) =>
  [q, ...split(labels).filter((each) => LABEL.test(each)), ...split(fields).map((each) => `field:${each}`)]
    .filter(Boolean)
    .join(" ");

export const extraLabels = (labels) => split(labels).filter((each) => !LABEL.test(each));

// `onWords` is called at once, `onSelectors` when the user pauses or presses Enter: each selector is another watch.
export function filterInput({ scope, text, label, onWords, onSelectors, onLeave }) {
  let timer = 0;
  scope.add(() => clearTimeout(timer));
  const commit = () => {
    clearTimeout(timer);
    onSelectors(parseFilter(input.value));
  };
  const type = () => {
    clearTimeout(timer);
    onWords(parseFilter(input.value));
    timer = setTimeout(commit, SELECTOR_DELAY);
  };
  const input = h("input", {
    type: "search",
    value: text,
    "aria-label": label,
    placeholder: T.filterHint,
    title: T.filterHelp,
    data: { filter: "" },
    autocomplete: "off",
    spellcheck: "false",
    "aria-keyshortcuts": "/",
    oninput: type,
    onkeydown: (event) => {
      if (event.key === "Enter" || event.key === "ArrowDown") {
        event.preventDefault();
        commit();
        onLeave();
      } else if (event.key === "Escape" && !input.value) onLeave();
    },
  });
  return {
    node: h("label.list-filter", icon("search"), input, h("kbd", { "aria-hidden": "true" }, "/")),
    input,
    clear: () => {
      input.value = "";
      type();
      commit();
    },
  };
}
