// Shown in a tab that was opened for a sign-on, while the tab with unsaved changes waits.

import { T } from "../texts/sign-in.js";
import { empty } from "../widgets/common.js";

export async function show(page) {
  page.setTitle(T.signedIn);
  page.main.append(empty(T.signedIn, T.signedInText));
  window.close();
}
