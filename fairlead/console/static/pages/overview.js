// The first page.

import { T } from "../texts/shell.js";

export async function show(page) {
  page.setTitle(T.overview);
  const { show: showKinds } = await import("./kinds.js");
  await showKinds({ ...page, setTitle: () => {} });
}
