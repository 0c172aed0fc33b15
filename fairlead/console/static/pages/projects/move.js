// Moves a virtual cluster to another project: first a dry run, then all or nothing.

import { request } from "../../core/api.js";
import { GROUP } from "../../core/base.js";
import { h, replace } from "../../core/dom.js";
import { listObjects, managed } from "../../core/kinds.js";
import { navigate } from "../../core/router.js";
import { openDialog, toast } from "../../shell/dialogs.js";
import { namespaceOf, projectOf } from "../../shell/sign-in.js";
import { T } from "../../texts/projects.js";
import { button } from "../../widgets/common.js";
import { errorBlock } from "../../widgets/errors.js";

export async function askMove({ kind, object }) {
  const { name, namespace } = object.metadata;
  const projects = managed("projects");
  const targets = (await listObjects(projects, { limit: 500 })).items
    .map((each) => each.metadata.name)
    .filter((each) => each !== projectOf(namespace));
  const target = await openDialog({
    title: T.moveTitle(name),
    body: (close, scope) => {
      const select = h(
        "select",
        { "aria-label": T.target },
        targets.map((each) => h("option", { value: each }, each)),
      );
      const result = h("div", { role: "status" });
      const send = (dryRun) =>
        request(`${projects.path("", select.value, "migratevirtualclusterinstance")}${dryRun ? "?dryRun=All" : ""}`, {
          method: "POST",
          signal: scope.signal,
          body: {
            apiVersion: `${GROUP}/v1`,
            kind: "ProjectMigrateVirtualClusterInstance",
            sourceVirtualClusterInstance: { name, namespace },
          },
        });
      const check = async () => {
        try {
          const { moves, count, changes } = (await send(true)).result;
          const move = button(T.moveNow, {
            kind: "primary",
            onclick: () =>
              send(false).then(
                () => close(select.value),
                (error) => replace(result, errorBlock(error)),
              ),
          });
          const listed = [...moves.map((each) => `${each.kind} ${each.name}`), ...changes];
          replace(
            result,
            h("p", `${T.checked} (${count})`),
            h(
              "ul",
              listed.map((each) => h("li", each)),
            ),
            move,
          );
        } catch (error) {
          replace(result, errorBlock(error));
        }
      };
      select.addEventListener("change", () => replace(result));
      return h(
        "div.stack",
        h("p", T.moveText),
        h("div.row", select, button(T.check, { onclick: check, disabled: !targets.length })),
        result,
      );
    },
  });
  if (!target) return;
  toast(T.moved(target));
  navigate(`${kind.segment}/${namespaceOf(target)}/${name}`);
}
