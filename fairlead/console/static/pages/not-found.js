// For addresses without a page.

import { href } from "../core/router.js";
import { T } from "../texts/shell.js";
import { empty, linkButton } from "../widgets/common.js";

export async function show(page) {
  page.setTitle(T.notFound);
  page.main.append(empty("", T.notFoundText, linkButton(href(""), T.overview, { icon: "home" })));
}
