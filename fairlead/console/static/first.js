// The theme that was chosen, before anything is painted. In index.html, as the stylesheet first.css is.

try {
  const theme = JSON.parse(localStorage.getItem("fairlead.theme") ?? "null");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  /* no storage: as the system has it */
}
