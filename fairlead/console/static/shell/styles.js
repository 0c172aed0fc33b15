// Loads the stylesheet of an area with its first page. A missing one is no reason not to show the page.

const loaded = new Map();

export function loadStyle(area) {
  if (!loaded.has(area)) {
    loaded.set(area, new Promise((resolve) => {
      const node = document.createElement("link");
      node.rel = "stylesheet";
      node.href = new URL(`../styles/${area}.css`, import.meta.url);
      node.onload = node.onerror = () => resolve();
      document.head.append(node);
    }));
  }
  return loaded.get(area);
}
