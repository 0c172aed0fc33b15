// Keys that work everywhere, except while typing: Ctrl-K, `/`, `?`, and `g` followed by a letter for a page.

import { h } from "../core/dom.js";
import { navigate } from "../core/router.js";
import { T } from "../texts/shell.js";
import { openDialog } from "./dialogs.js";
import { listEntries } from "./navigation.js";

const SEQUENCE = 1200;
let prefix = "";
let since = 0;

const isTyping = (target) => target.closest?.("input, textarea, select, [contenteditable], .terminal");

export function installShortcuts(openPalette) {
  const pages = new Map(
    listEntries()
      .flatMap((section) => section.entries)
      .filter((entry) => entry.keys)
      .map((entry) => [entry.keys, entry.path]),
  );
  document.addEventListener("keydown", (event) => {
    if (
      (event.ctrlKey || event.metaKey) &&
      !event.shiftKey &&
      event.key.toLowerCase() === "k" &&
      !event.target.closest?.(".terminal")
    ) {
      event.preventDefault();
      openPalette();
      return;
    }
    if (
      event.ctrlKey ||
      event.metaKey ||
      event.altKey ||
      event.defaultPrevented ||
      isTyping(event.target) ||
      document.querySelector("dialog[open]")
    )
      return;
    handle(event, pages);
  });
}

function handle(event, pages) {
  if (event.key === "?") return showShortcuts();
  if (event.key === "/") {
    const filter = document.querySelector("[data-filter]");
    if (filter) {
      event.preventDefault();
      filter.focus();
      filter.select?.();
    }
    return;
  }
  const keys = prefix && event.timeStamp - since < SEQUENCE ? `${prefix} ${event.key}` : "";
  prefix = "";
  if (keys && pages.has(keys)) {
    event.preventDefault();
    navigate(pages.get(keys));
  } else if (event.key === "g") {
    prefix = "g";
    since = event.timeStamp;
  }
}

export function showShortcuts() {
  const pages = listEntries()
    .flatMap((section) => section.entries)
    .filter((entry) => entry.keys)
    .map((entry) => [entry.keys, entry.title]);
  const rows = [...T.shortcutList, ...pages].map(([keys, text]) => [
    h(
      "dt",
      keys.split(" ").map((key) => h("kbd", key)),
    ),
    h("dd", text),
  ]);
  return openDialog({ title: T.shortcuts, body: h("dl.shortcuts", rows) });
}
