// A question about permissions: its form, the review that answers it, and the answer with each step of the decision.

import { request } from "../../core/api.js";
import { API, GROUP } from "../../core/base.js";
import { h, newId, replace } from "../../core/dom.js";
import { managed, management } from "../../core/kinds.js";
import { FAILED, READY } from "../../core/status.js";
import { announce } from "../../shell/dialogs.js";
import { namespaceOf, projectOf } from "../../shell/sign-in.js";
import { T } from "../../texts/access.js";
import { button, field } from "../../widgets/common.js";
import { errorBlock, sentence } from "../../widgets/errors.js";
import { suggestions } from "../../widgets/form/suggest.js";
import { findKind, findName } from "../../widgets/names.js";
import { stateBadge } from "../../widgets/state.js";

const VERBS = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "use"];

export const createReview = (name, spec, signal, onWarnings) =>
  request(`${API}/apis/${GROUP}/v1/${name.toLowerCase()}s`, {
    method: "POST",
    body: { apiVersion: `${GROUP}/v1`, kind: name, spec },
    signal,
    onWarnings,
  });

const optionList = (values) =>
  h(
    "datalist",
    { id: newId("options") },
    values.map((value) => h("option", { value })),
  );

// Inputs by name, and their form. `first` are further controls by name, `extra` such ones under "More". `onask` gets
// the text of each.
export function questionForm(values, extra, onask, { first = [], look = "primary" } = {}) {
  const suggest = suggestions(managed("ownedaccesskeys"), () => "");
  const verbs = optionList(VERBS);
  const kinds = optionList(management.kinds.map((kind) => kind.segment).sort());
  const input = (name, properties) =>
    h("input", { name, value: values[name] ?? "", autocomplete: "off", spellcheck: "false", ...properties });
  const namespace = input("namespace");
  const inputs = {
    verb: input("verb", { required: true, list: verbs.id }),
    kind: input("kind", { required: true, list: kinds.id }),
    namespace,
    name: input("name"),
    subresource: input("subresource"),
    ...Object.fromEntries([...first, ...extra].map(([name]) => [name, input(name)])),
  };
  const lists = [
    verbs,
    kinds,
    suggest({ path: "project" }, namespace),
    ...first.map(([name, , path]) => suggest({ path }, inputs[name])),
  ];
  const problem = h("div.problem");
  const submit = async (event) => {
    event?.preventDefault();
    replace(problem);
    const texts = Object.fromEntries(Object.entries(inputs).map(([name, each]) => [name, each.value.trim()]));
    try {
      await onask(texts);
    } catch (error) {
      if (error.name !== "AbortError")
        replace(
          problem,
          error instanceof QuestionError ? h("p.error", { role: "alert" }, error.message) : errorBlock(error),
        );
    }
  };
  const node = h(
    "form.ask",
    { onsubmit: submit },
    first.map(([name, label]) => field(label, inputs[name])),
    ["verb", "kind", "namespace", "name"].map((name) => field(T[name], inputs[name])),
    h(
      "details.more",
      { open: Boolean(values.subresource || extra.some(([name]) => values[name])) },
      h("summary", T.more),
      h(
        "div.ask",
        field(T.subresource, inputs.subresource),
        extra.map(([name, label]) => field(label, inputs[name])),
      ),
    ),
    lists,
    problem,
    h("div", button(T.ask, { kind: look, type: "submit" })),
  );
  return { node, inputs, submit };
}

export class QuestionError extends Error {}

// The attributes of a review. A project's name stands for its namespace, as it is what people know.
/**
 * @param {Record<string, string>} texts
 * @param {AbortSignal} signal
 * @returns {Promise<ResourceAttributes>}
 */
export async function attributesOf({ verb, kind, namespace: place, name, subresource }, signal) {
  const found = findKind(kind);
  const [resource, ...group] = kind.split(".");
  if (!found && !group.length) throw new QuestionError(T.unknownKind);
  const isProject = place && found?.group === GROUP && found.namespaced && !projectOf(place);
  const attributes = { verb, group: found?.group ?? group.join("."), resource: found?.plural ?? resource };
  const namespace = isProject ? namespaceOf(await findName("projects", place, signal)) : place;
  return Object.assign(
    attributes,
    Object.fromEntries(Object.entries({ namespace, name, subresource }).filter(([, value]) => value)),
  );
}

/**
 * @param {string} who
 * @param {ResourceAttributes} attributes
 */
export function describe(who, { verb, group, resource, namespace, name, subresource }) {
  const kind = management.find(resource, group ?? "");
  const object = name ? T.called(kind?.noun ?? resource, name) : (kind?.pluralNoun ?? resource);
  return T.sentence(
    who,
    verb,
    subresource ? T.partOf(subresource, object) : object,
    namespace ? T.inPlace(projectOf(namespace) || namespace) : "",
  );
}

// `because` is the reason in the words of the product, if it is known; `next` is what to do about it.
/**
 * @param {string} question
 * @param {any} status
 * @param {{because?: Child, next?: Child}} more
 */
export function answer(question, status, { because = "", next } = {}) {
  const { allowed, filtered, path = [] } = status;
  const word = allowed ? T.allowed : filtered ? T.filtered : T.denied;
  const why = because || reasonOf(status);
  announce(`${question} ${word}`);
  return h(
    "div.stack.answer",
    h("p", question),
    stateBadge({ state: allowed || filtered ? READY : FAILED, word }),
    why && h("p.wrap", because || sentence(why)),
    next,
    path.length > 0 && decisionPath(status),
  );
}

// A list that is filtered is allowed, though no authorizer has allowed it for all objects.
function reasonOf({ allowed, filtered, reason, path = [] }) {
  if (filtered) return T.filteredReason;
  const decided = path.find((step) => step.verdict === "allow" || step.verdict === "deny");
  if (!allowed && decided?.step === "default") return T.noOneAllows;
  return reason || decided?.reason;
}

// The steps that decided; the others are folded.
function decisionPath({ filtered, path }) {
  const isDecisive = ({ step, verdict }) => (filtered ? step === "lists" : verdict === "allow" || verdict === "deny");
  const line = (step) =>
    h(
      "li",
      { data: { verdict: step.verdict } },
      h("strong", T.steps[step.step] ?? step.step),
      ": ",
      filtered && step.step === "lists" ? T.showsPart : (T.verdicts[step.verdict] ?? step.verdict),
      step.reason && !isFixed(step) && h("div", sentence(step.reason)),
    );
  const others = path.filter((step) => !isDecisive(step));
  return h(
    "div",
    h("h3", T.path),
    h("ul.decision-steps", path.filter(isDecisive).map(line)),
    others.length > 0 &&
      h("details", h("summary", T.otherSteps(others.length)), h("ol.decision-steps", others.map(line))),
  );
}

// Their reasons say the same as the verdict.
const isFixed = ({ step }) => step === "lists" || step === "default";

// "Could this key ...?": `restriction()` returns {accessKey} or {scope}.
export function tester(who, restriction, scope, values = { verb: "delete", kind: "projects" }) {
  const result = h("div", { "aria-live": "polite" });
  const ask = async (texts) => {
    replace(result);
    const resourceAttributes = await attributesOf(texts, scope.signal);
    const { status } = await createReview(
      "SelfSubjectAccessReview",
      { resourceAttributes, ...restriction() },
      scope.signal,
    );
    replace(result, answer(describe(who, resourceAttributes), status));
  };
  const { node } = questionForm(values, [], ask, { look: "" });
  return h("div.stack.tester", node, result);
}
