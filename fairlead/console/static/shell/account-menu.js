// The menu of the signed-in user: account, theme, shortcuts, sign out.

import { session } from "../core/api.js";
import { h } from "../core/dom.js";
import { preferences } from "../core/preferences.js";
import { link } from "../core/router.js";
import { T } from "../texts/shell.js";
import { icon } from "../widgets/common.js";
import { showShortcuts } from "./shortcuts.js";
import { signOut } from "./sign-in.js";
import { setTheme, THEMES } from "./theme.js";

export function accountMenu() {
  const select = (label, name, options, fallback, apply) =>
    h(
      "label.menu-row",
      label,
      h(
        "select",
        { onchange: (event) => apply(event.target.value) },
        options.map((value) =>
          h("option", { value, selected: preferences.get(name, fallback) === value }, T.choices[value]),
        ),
      ),
    );
  const panel = h(
    "div.menu-panel",
    h("p.menu-head", h("strong", session.user.displayName), h("span.muted", session.user.name)),
    link("account", T.account),
    link("ownedaccesskeys", T.myKeys),
    select(T.theme, "theme", THEMES, "system", setTheme),
    select(T.times, "zone", ["local", "utc"], "local", (value) => {
      preferences.set("zone", value);
      location.reload();
    }),
    h("button.quiet", { type: "button", onclick: showShortcuts }, T.shortcuts),
    h("button.quiet", { type: "button", onclick: () => signOut() }, T.signOut),
  );
  const details = h(
    "details.account",
    h(
      "summary",
      { "aria-label": T.accountOf(session.user.displayName) },
      icon("user"),
      h("span.account-name", session.user.displayName),
    ),
    panel,
  );
  document.addEventListener("click", (event) => {
    if (details.open && !details.contains(event.target)) details.open = false;
  });
  panel.addEventListener("click", (event) => {
    if (event.target.closest("a, button")) details.open = false;
  });
  details.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      details.open = false;
      details.querySelector("summary").focus();
    }
  });
  return details;
}
