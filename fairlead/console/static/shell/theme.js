// Light, dark, or as the system.

import { preferences } from "../core/preferences.js";

export const THEMES = ["system", "light", "dark"];

export function applyTheme(theme = preferences.get("theme", "system")) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

export function setTheme(theme) {
  preferences.set("theme", theme);
  applyTheme(theme);
}
