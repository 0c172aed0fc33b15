// For addresses without a page.

import { link } from "../core/router.js";
import { T } from "../texts/shell.js";
import { empty } from "../widgets/common.js";

export async function show(page) {
  page.setTitle(T.notFound);
  page.main.append(empty(T.notFound, T.notFoundText, link("", T.overview)));
}
