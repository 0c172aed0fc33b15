// For addresses without a page.

import { empty } from "../widgets/common.js";
import { link } from "../core/router.js";
import { T } from "../texts/shell.js";

export async function show(page) {
  page.setTitle(T.notFound);
  page.main.append(empty(T.notFound, T.notFoundText, link("", T.overview)));
}
