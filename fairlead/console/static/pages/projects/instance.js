// Spaces and virtual clusters: where they run, how to use them, their template and its parameters, sleep, and moving.

import { h, replace } from "../../core/dom.js";
import { patchObject, pathOf } from "../../core/kinds.js";
import { link, navigate } from "../../core/router.js";
import { condition } from "../../core/status.js";
import { toast } from "../../shell/dialogs.js";
import { projectOf } from "../../shell/sign-in.js";
import { button, card, codeBlock, definition } from "../../widgets/common.js";
import { errorBlock } from "../../widgets/errors.js";
import { T } from "../../texts/projects.js";

const TEMPLATES = { spaceinstances: "spacetemplates", virtualclusterinstances: "virtualclustertemplates" };
const FLAGS = { spaceinstances: "--space", virtualclusterinstances: "--virtual-cluster" };

export function summary(context) {
  const facts = context.live(({ metadata, spec, status }) => [metadata.namespace, spec, status], (object) => factList(context.kind, object));
  const hasDrift = (object) => condition(object, "TemplateSynced")?.status === "False";
  const drift = context.live(hasDrift, (object) => hasDrift(object) && driftNotice(context));
  const { name, namespace } = context.object.metadata;
  const command = `fairlead kubeconfig ${FLAGS[context.kind.plural]} ${projectOf(namespace)}/${name}`;
  return h("div.stack", drift, h("div.grid", card(T.facts, facts), card(T.connect, h("p.muted", T.kubeconfig), codeBlock(command))));
}

function factList(kind, { metadata, spec = {}, status = {} }) {
  const project = projectOf(metadata.namespace);
  const { cluster, namespace } = spec.clusterRef ?? {};
  const template = spec.templateRef?.name;
  return definition([
    [T.project, project && link(`projects/${project}`, project)],
    [T.cluster, cluster ? link(`clusters/${encodeURIComponent(cluster)}`, cluster) : T.noCluster],
    [T.namespaceThere, namespace && h("code", namespace)],
    [T.owner, spec.owner?.user || spec.owner?.team],
    [T.template, template && link(`${TEMPLATES[kind.plural]}/${encodeURIComponent(template)}`, template)],
    [T.version, spec.templateRef?.version],
    [T.parameters, spec.parameters && h("pre", spec.parameters)],
    [T.sentence, status.reason],
  ]);
}

function driftNotice({ kind, object }) {
  const problem = h("div");
  const { name, namespace } = object.metadata;
  const apply = async () => {
    try {
      await patchObject(kind, namespace, name, { spec: { templateRef: { syncOnce: true } } });
      toast(T.applied);
    } catch (error) { replace(problem, errorBlock(error)); }
  };
  return h("div.notice", h("p", T.drift), button(T.applyTemplate, { onclick: apply }), problem);
}

export function actions(context) {
  const { kind, object } = context;
  const { name, namespace } = object.metadata;
  const browse = { title: T.browse, icon: "grid", question: { verb: "use", kind, namespace, name }, run: () => navigate(`${pathOf(kind, object)}/~browse`) };
  if (kind.plural !== "virtualclusterinstances") return [browse];
  return [browse, { title: T.move, icon: "folder", question: { verb: "update", kind, namespace, name }, run: async () => (await import("./move.js")).askMove(context) }];
}
