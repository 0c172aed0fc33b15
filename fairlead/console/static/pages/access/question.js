// A question about permissions: its form, the review that answers it, and the answer with each step of the decision.

import { request } from "../../core/api.js";
import { API, GROUP } from "../../core/base.js";
import { h, newId, replace } from "../../core/dom.js";
import { managed, management } from "../../core/kinds.js";
import { FAILED, READY } from "../../core/status.js";
import { announce } from "../../shell/dialogs.js";
import { namespaceOf, projectOf } from "../../shell/sign-in.js";
import { field } from "../../widgets/common.js";
import { errorBlock, sentence } from "../../widgets/errors.js";
import { suggestions } from "../../widgets/form/suggest.js";
import { findKind, findName } from "../../widgets/names.js";
import { stateBadge } from "../../widgets/state.js";
import { T } from "../../texts/access.js";

const VERBS = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "use"];

export const createReview = (name, spec, signal) =>
  request(`${API}/apis/${GROUP}/v1/${name.toLowerCase()}s`, { method: "POST", body: { apiVersion: `${GROUP}/v1`, kind: name, spec }, signal });

const optionList = (values) => h("datalist", { id: newId("options") }, values.map((value) => h("option", { value })));

// Inputs by name, and their form. `first` are further controls by name, `extra` such ones under "More". `onask` gets the text of each.
export function questionForm(values, extra, onask, first = []) {
  const suggest = suggestions(managed("ownedaccesskeys"), () => "");
  const verbs = optionList(VERBS), kinds = optionList(management.kinds.map((kind) => kind.segment).sort());
  const input = (name, properties) => h("input", { name, value: values[name] ?? "", autocomplete: "off", spellcheck: "false", ...properties });
  const namespace = input("namespace");
  const inputs = { verb: input("verb", { required: true, list: verbs.id }), kind: input("kind", { required: true, list: kinds.id }), namespace, name: input("name"), subresource: input("subresource"), ...Object.fromEntries([...first, ...extra].map(([name]) => [name, input(name)])) };
  const lists = [verbs, kinds, suggest({ path: "project" }, namespace), ...first.map(([name, , path]) => suggest({ path }, inputs[name]))];
  const problem = h("div.problem");
  const submit = async (event) => {
    event?.preventDefault();
    replace(problem);
    const texts = Object.fromEntries(Object.entries(inputs).map(([name, each]) => [name, each.value.trim()]));
    try { await onask(texts); } catch (error) { if (error.name !== "AbortError") replace(problem, error instanceof QuestionError ? h("p.error", { role: "alert" }, error.message) : errorBlock(error)); }
  };
  const node = h("form.ask", { onsubmit: submit }, first.map(([name, label]) => field(label, inputs[name])), ["verb", "kind", "namespace", "name"].map((name) => field(T[name], inputs[name])),
    h("details.more", { open: Boolean(values.subresource || extra.some(([name]) => values[name])) }, h("summary", T.more), h("div.ask", field(T.subresource, inputs.subresource), extra.map(([name, label]) => field(label, inputs[name])))),
    lists, problem, h("div", h("button.primary", { type: "submit" }, T.ask)));
  return { node, inputs, submit };
}

export class QuestionError extends Error {}

// The attributes of a review. A project's name stands for its namespace, as it is what people know.
export async function attributesOf({ verb, kind, namespace: place, name, subresource }, signal) {
  const found = findKind(kind);
  const [resource, ...group] = kind.split(".");
  if (!found && !group.length) throw new QuestionError(T.unknownKind);
  const isProject = place && found?.group === GROUP && found.namespaced && !projectOf(place);
  const attributes = { verb, group: found?.group ?? group.join("."), resource: found?.plural ?? resource };
  const namespace = isProject ? namespaceOf(await findName("projects", place, signal)) : place;
  return Object.assign(attributes, Object.fromEntries(Object.entries({ namespace, name, subresource }).filter(([, value]) => value)));
}

export function describe(who, { verb, resource, namespace, name, subresource }) {
  return T.sentence(who, verb, `${resource}${subresource ? `/${subresource}` : ""}${name ? T.called(name) : ""}`, namespace ? T.inPlace(namespace) : "");
}

// `next` is what to do about it.
export function answer(question, { allowed, filtered, reason, path = [] }, next) {
  const word = allowed ? T.allowed : filtered ? T.filtered : T.denied;
  const why = reason || path.find((step) => step.verdict === "allow" || step.verdict === "deny")?.reason;
  announce(`${question} ${word}`);
  return h("div.stack.answer", h("p", question), stateBadge({ state: allowed || filtered ? READY : FAILED, word }), why && h("p.wrap", sentence(why)), next,
    path.length > 0 && h("div", h("h3", T.path), h("p.muted", T.pathHint), h("ol.decision-steps", path.map((step) => h("li", { data: { verdict: step.verdict } }, h("strong", T.steps[step.step] ?? step.step), `: ${T.verdicts[step.verdict] ?? step.verdict}`, step.reason && h("div", sentence(step.reason)))))));
}

// "Could this key ...?": `restriction()` returns {accessKey} or {scope}.
export function tester(who, restriction, scope, values = { verb: "delete", kind: "projects" }) {
  const result = h("div", { "aria-live": "polite" });
  const { node } = questionForm(values, [], async (texts) => {
    replace(result);
    const resourceAttributes = await attributesOf(texts, scope.signal);
    const { status } = await createReview("SelfSubjectAccessReview", { resourceAttributes, ...restriction() }, scope.signal);
    replace(result, answer(describe(who, resourceAttributes), status));
  });
  return h("div.stack.tester", node, result);
}
