// The value of a new or rotated access key: shown once, kept nowhere.

import { ROOT } from "../../core/base.js";
import { h } from "../../core/dom.js";
import { openDialog } from "../../shell/dialogs.js";
import { T } from "../../texts/access.js";
import { codeBlock, copyButton } from "../../widgets/common.js";

// `value` is only in the closure of this dialog. The commands do not contain it: they are copied into a shell's
// history.
export function showValue(title, value) {
  const server = ROOT.href.replace(/\/$/, "");
  return openDialog({
    title,
    wide: true,
    body: h(
      "div.stack",
      h("p", h("strong", T.once)),
      h("div.row", h("code.key-value.wrap", { "aria-label": T.value }, value), copyButton(value, T.copy)),
      h("p", T.use),
      codeBlock(`read -rs FAIRLEAD_KEY && export FAIRLEAD_KEY FAIRLEAD_URL=${server}`),
      codeBlock(`fairlead login ${server} --key-stdin`),
    ),
    actions: [{ title: T.done, kind: "primary" }],
  });
}
