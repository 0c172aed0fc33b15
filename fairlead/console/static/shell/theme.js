// Light, dark, or as the system. The page begins with the theme that was chosen: see first.js.

import { preferences } from "../core/preferences.js";

export const THEMES = ["system", "light", "dark"];

export function setTheme(theme) {
  preferences.set("theme", theme);
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}
