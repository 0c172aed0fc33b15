// "May I?": who the user is, whether a request is allowed, how that is decided, and who else can make it.
//
// The question is in the URL, so that a denied request of the audit log, or a colleague, can link to the answer.

import { review } from "../core/access.js";
import { session } from "../core/api.js";
import { GROUP } from "../core/base.js";
import { h, replace } from "../core/dom.js";
import { getObject, managed, management } from "../core/kinds.js";
import { link, setQuery } from "../core/router.js";
import { button, card, definition } from "../widgets/common.js";
import { errorBlock, sentence } from "../widgets/errors.js";
import { T } from "../texts/access.js";
import { answer, attributesOf, createReview, describe, questionForm, QuestionError } from "./access/question.js";

const MAX_LISTED = 100;

export async function show(page) {
  page.setTitle(T.title);
  const result = h("div.stack", { "aria-live": "polite" });
  const values = readQuery(page.query);
  const form = questionForm(values, [["user", T.asUser, "user"], ["accessKey", T.withKey]], (texts) => ask(page, texts, result));
  page.main.append(h("div.stack", card(T.question, form.node), result, card(T.me, identity())));
  reviewCreate("subjectaccessreviews").then(({ allowed, reason }) => { if (!allowed) Object.assign(form.inputs.user, { disabled: true, placeholder: T.mayNotAsk, title: reason }); });
  if (values.verb && values.kind) await form.submit();
}

const reviewCreate = (plural) => review({ verb: "create", kind: { group: GROUP, version: "v1", plural } });

function readQuery(query) {
  const values = Object.fromEntries(["verb", "namespace", "name", "subresource", "user", "accessKey"].map((name) => [name, query.get(name) ?? ""]));
  const resource = query.get("resource") ?? "", group = query.get("group") ?? "";
  const kind = resource && (management.find(resource, group) ?? (group ? null : management.find(resource)));
  return { ...values, kind: kind ? kind.segment : [resource, group].filter(Boolean).join(".") };
}

function identity() {
  const { user } = session;
  const names = (list) => (list.length ? h("ul.plain", list.map((each) => h("li", each))) : T.none);
  return definition([[T.user, link(`users/${encodeURIComponent(user.name)}`, user.name)], [T.teams, names(user.teams.map((team) => link(`teams/${encodeURIComponent(team.name)}`, team.displayName || team.name)))],
    [T.groups, names(user.groups.map((group) => h("code", group)))], [T.key, session.key && link(`ownedaccesskeys/${encodeURIComponent(session.key)}`, session.key)]]);
}

async function ask(page, texts, result) {
  const { user, accessKey } = texts;
  replace(result);
  if (user && accessKey) throw new QuestionError(T.oneOf);
  const resourceAttributes = attributesOf(texts);
  const { verb, resource, group, namespace, name, subresource } = resourceAttributes;
  setQuery({ verb, resource, group, namespace, name, subresource, user, accessKey });
  const isOther = user && user !== session.user.name;
  const spec = { resourceAttributes, ...(isOther && { user }), ...(accessKey && { accessKey }) };
  const { status } = await createReview(isOther ? "SubjectAccessReview" : "SelfSubjectAccessReview", spec, page.scope.signal);
  const who = isOther ? user : accessKey ? T.keyCalled(accessKey) : T.i;
  const others = h("div");
  replace(result, card("", answer(describe(who, resourceAttributes), status)), card(T.whoCan, others));
  await offerList(page, resourceAttributes, others);
}

// Everyone is reviewed for the list, so only when asked. Users who may not ask learn whom they can talk to.
async function offerList(page, resourceAttributes, node) {
  const { allowed, reason } = await reviewCreate("resourceaccessreviews");
  if (!allowed) return replace(node, h("p.muted", `${T.mayNotList} ${reason}`), await contacts(page, resourceAttributes.namespace));
  const load = async () => {
    try {
      replace(node, whoList((await createReview("ResourceAccessReview", { resourceAttributes }, page.scope.signal)).status));
    } catch (error) { if (!page.scope.ended) replace(node, errorBlock(error)); }
  };
  replace(node, h("p.muted", T.whoCanHint), button(T.list, { icon: "users", onclick: load }));
}

function whoList(status) {
  const found = Object.keys(T.lists).filter((part) => status[part]?.length);
  const entry = (part, { name, via, reason }) => h("li", part === "groups" ? h("code", name) : link(`${part}/${encodeURIComponent(name)}`, name), h("span.muted", ` ${T.steps[via] ?? via ?? ""}${reason ? `: ${sentence(reason)}` : ""}`));
  return h("div.stack.who", found.map((part) => h("div", h("h3", T.lists[part]), h("ul.plain", status[part].slice(0, MAX_LISTED).map((each) => entry(part, each))))),
    !found.length && h("p", T.nobody), (status.truncated || found.some((part) => status[part].length > MAX_LISTED)) && h("p.muted", T.truncated));
}

async function contacts(page, namespace = "") {
  const prefix = session.installation?.prefix;
  const kind = managed("projects"), name = prefix !== undefined && namespace.startsWith(prefix) ? namespace.slice(prefix.length) : "";
  const { allowed } = name ? await review({ verb: "get", kind, name }) : {};
  const project = allowed && await getObject(kind, "", name, { signal: page.scope.signal }).catch(() => null);
  if (!project) return h("p", T.askAdmin);
  const { owner = {}, members = [] } = project.spec ?? {};
  const people = [[owner.user, "users"], [owner.team, "teams"], ...members.filter((each) => each.clusterRole === "admin").map((each) => [each.name, each.kind === "Team" ? "teams" : "users"])].filter(([each]) => each);
  return people.length ? h("div", h("p", T.askProject), h("ul.plain", people.map(([each, segment]) => h("li", link(`${segment}/${encodeURIComponent(each)}`, each))))) : h("p", T.askAdmin);
}
