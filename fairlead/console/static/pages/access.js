// "May I?": who the user is, whether a request is allowed, how that is decided, and who else can make it.
//
// The question is in the URL, so that a denied request of the audit log, or a colleague, can link to the answer.

import { can, review } from "../core/access.js";
import { session } from "../core/api.js";
import { GROUP } from "../core/base.js";
import { h, replace } from "../core/dom.js";
import { getObject, managed, management } from "../core/kinds.js";
import { href, link, setQuery } from "../core/router.js";
import { projectOf } from "../shell/sign-in.js";
import { T } from "../texts/access.js";
import { card, definition } from "../widgets/common.js";
import { findName } from "../widgets/names.js";
import { warningBlock } from "../widgets/warnings.js";
import { explainDenial } from "./access/denial.js";
import { answer, attributesOf, createReview, describe, QuestionError, questionForm } from "./access/question.js";
import { whoCan } from "./access/who.js";

const RBAC = "rbac.authorization.k8s.io";

export async function show(page) {
  page.setTitle(T.title);
  const result = h("div.stack", { "aria-live": "polite" });
  const values = readQuery(page.query);
  const form = questionForm(values, [["accessKey", T.withKey]], (texts) => ask(page, texts, result), {
    first: [["user", T.asUser, "user"]],
  });
  const limits = session.scope && (await import("./access/scope.js")).scopeWords(session.scope);
  page.main.append(
    h(
      "div.stack",
      limits && h("p.notice", T.isScoped(session.key)),
      card(T.question, form.node),
      result,
      card(T.me, identity(), limits),
    ),
  );
  reviewCreate("subjectaccessreviews").then(({ allowed, reason }) => {
    if (!allowed) Object.assign(form.inputs.user, { disabled: true, placeholder: T.mayNotAsk, title: reason });
  });
  if (values.verb && values.kind) await form.submit();
}

const reviewCreate = (plural) => review({ verb: "create", kind: { group: GROUP, version: "v1", plural } });

/**
 * @param {URLSearchParams} query
 * @returns {Record<string, string>}
 */
function readQuery(query) {
  const values = Object.fromEntries(
    ["verb", "namespace", "name", "subresource", "user", "accessKey"].map((name) => [name, query.get(name) ?? ""]),
  );
  const resource = query.get("resource") ?? "";
  const group = query.get("group") ?? "";
  const kind = resource && (management.find(resource, group) ?? (group ? null : management.find(resource)));
  return { ...values, kind: kind ? kind.segment : [resource, group].filter(Boolean).join(".") };
}

function identity() {
  const { user } = session;
  const names = (list) =>
    list.length
      ? h(
          "ul.plain",
          list.map((each) => h("li", each)),
        )
      : T.none;
  return definition([
    [T.user, link(`users/${encodeURIComponent(user.name)}`, user.name)],
    [
      T.teams,
      names(user.teams.map((team) => link(`teams/${encodeURIComponent(team.name)}`, team.displayName || team.name))),
    ],
    [T.groups, names(user.groups.map((group) => h("code", group)))],
    [T.key, session.key && link(`ownedaccesskeys/${encodeURIComponent(session.key)}`, session.key)],
  ]);
}

async function ask(page, texts, result) {
  const { accessKey } = texts;
  const { signal } = page.scope;
  replace(result);
  if (texts.user && accessKey) throw new QuestionError(T.oneOf);
  const [resourceAttributes, user] = await Promise.all([
    attributesOf(texts, signal),
    findName("users", texts.user, signal),
  ]);
  const { verb, resource, group, namespace, name, subresource } = resourceAttributes;
  setQuery({ verb, resource, group, namespace, name, subresource, user, accessKey });
  // Without an access key, the user alone is meant.
  const isOther = user && (user !== session.user.name || session.scope);
  const spec = { resourceAttributes, ...(isOther && { user }), ...(accessKey && { accessKey }) };
  let warnings = [];
  const kind = isOther ? "SubjectAccessReview" : "SelfSubjectAccessReview";
  const { status } = await createReview(kind, spec, signal, (found) => {
    warnings = found;
  });
  const who = isOther ? user : accessKey ? T.keyCalled(accessKey) : session.scope ? T.iWithKey(session.key) : T.i;
  const others = h("div");
  const isDenied = !status.allowed && !status.filtered;
  const isByRole = isDenied && !isOutOfScope(status) && !accessKey;
  const because = isByRole
    ? await explainDenial(user || session.user.name, resourceAttributes, signal)
    : isDenied && isOutOfScope(status)
      ? T.outOfScope
      : "";
  const next = isByRole && (await waysToAllow(resourceAttributes));
  replace(
    result,
    card("", warningBlock(warnings), answer(describe(who, resourceAttributes), status, { because, next })),
    card(T.whoCan, others),
  );
  await offerList(page, resourceAttributes, others);
}

// No role helps then.
const isOutOfScope = ({ path = [] }) => path.some(({ step, verdict }) => step === "within scope" && verdict === "deny");

// Where those who may do so give the right.
/** @param {ResourceAttributes} attributes */
async function waysToAllow({ resource, group, namespace, name }) {
  const projects = managed("projects");
  const project = projectOf(namespace) || (group === GROUP && resource === "projects" && name);
  const bindings = management.find("clusterrolebindings", RBAC);
  const [isMember, isBound] = await Promise.all([
    project && can("patch", projects, "", project),
    bindings && can("create", bindings),
  ]);
  const ways = [
    isMember &&
      h("a", { href: href(`projects/${encodeURIComponent(project)}`, { view: "members" }) }, T.changeRole(project)),
    isBound && link(`${bindings.segment}/~new`, T.bindRole),
  ].filter(Boolean);
  return (
    ways.length > 0 &&
    h(
      "div",
      h("h3", T.allowIt),
      h(
        "ul.plain",
        ways.map((each) => h("li", each)),
      ),
    )
  );
}

// Users who may not ask learn whom they can talk to.
async function offerList(page, resourceAttributes, node) {
  const { allowed, reason } = await reviewCreate("resourceaccessreviews");
  if (!allowed)
    return replace(node, h("p.muted", `${T.mayNotList} ${reason}`), await contacts(page, resourceAttributes.namespace));
  replace(node, whoCan(resourceAttributes, page.scope, T.whoCanHint));
}

async function contacts(page, namespace = "") {
  const kind = managed("projects");
  const name = projectOf(namespace);
  const { allowed } = name ? await review({ verb: "get", kind, name }) : {};
  const project = allowed && (await getObject(kind, "", name, { signal: page.scope.signal }).catch(() => null));
  if (!project) return h("p", T.askAdmin);
  const { owner = {}, members = [] } = project.spec ?? {};
  const people = [
    [owner.user, "users"],
    [owner.team, "teams"],
    ...members
      .filter((each) => each.clusterRole === "admin")
      .map((each) => [each.name, each.kind === "Team" ? "teams" : "users"]),
  ].filter(([each]) => each);
  return people.length
    ? h(
        "div",
        h("p", T.askProject),
        h(
          "ul.plain",
          people.map(([each, segment]) => h("li", link(`${segment}/${encodeURIComponent(each)}`, each))),
        ),
      )
    : h("p", T.askAdmin);
}
