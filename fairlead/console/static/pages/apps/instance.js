// An installed app: its release, the notes of the chart, and its history with a way back.

import { guard } from "../../core/access.js";
import { h, replace } from "../../core/dom.js";
import { patchObject } from "../../core/kinds.js";
import { link } from "../../core/router.js";
import { timeElement } from "../../core/time.js";
import { toast } from "../../shell/dialogs.js";
import { T } from "../../texts/apps.js";
import { button, card, definition, tableOf } from "../../widgets/common.js";
import { errorBlock } from "../../widgets/errors.js";

const TARGETS = {
  spaceInstance: "spaceinstances",
  virtualClusterInstance: "virtualclusterinstances",
  cluster: "clusters",
};

export function summary(context) {
  return context.live(
    ({ spec, status }) => [spec, status],
    (object) =>
      h(
        "div.grid",
        releaseCard(object),
        object.status?.notes && card(T.notes, h("pre", object.status.notes)),
        object.status?.history?.length > 0 && historyCard(context, object),
      ),
  );
}

function releaseCard({ metadata, spec = {}, status = {} }) {
  const { release = {}, drift } = status;
  const [field, place] = Object.entries(spec.target ?? {})[0] ?? [];
  const path =
    field && [TARGETS[field], field !== "cluster" && metadata.namespace, place.name].filter(Boolean).join("/");
  return card(
    T.release,
    definition([
      [T.app, spec.appRef?.name && link(`apps/${encodeURIComponent(spec.appRef.name)}`, spec.appRef.name)],
      [T.version, spec.appRef?.version],
      [T.target, path && link(path, `${place.name}${place.namespace ? ` / ${place.namespace}` : ""}`)],
      [T.release, release.name],
      [T.revision, release.revision],
      [T.chart, release.chart && `${release.chart} ${release.version ?? ""}`],
      [T.deployed, release.deployedAt && timeElement(release.deployedAt)],
      [T.drift, drift && [timeElement(drift.time), ` ${drift.message}`]],
    ]),
  );
}

// As `fairlead app rollback`: the version and the parameters of an earlier deployment are written into the spec.
function historyCard(context, object) {
  const problem = h("div");
  const { kind } = context;
  const { name, namespace } = object.metadata;
  const rollBack = async (entry) => {
    try {
      await patchObject(kind, namespace, name, {
        metadata: { resourceVersion: context.object.metadata.resourceVersion },
        spec: { appRef: { version: entry.appVersion || null }, parameters: entry.parameters ?? "" },
      });
      toast(T.rolledBack);
    } catch (error) {
      replace(problem, errorBlock(error));
    }
  };
  const rows = object.status.history.map((entry, index) => {
    const back =
      index > 0 &&
      entry.hasAllParameters !== false &&
      button(T.rollBack, { kind: "quiet", "aria-label": T.rollBackTo(entry.revision), onclick: () => rollBack(entry) });
    if (back) guard(back, { verb: "patch", kind, namespace, name });
    return h(
      "tr",
      h("td", entry.revision),
      h("td", entry.appVersion || T.unversioned),
      h("td", entry.chart),
      h("td", entry.deployedAt && timeElement(entry.deployedAt)),
      h("td", back),
    );
  });
  return card(T.history, problem, tableOf([T.revision, T.version, T.chart, T.deployed, ""], rows));
}
