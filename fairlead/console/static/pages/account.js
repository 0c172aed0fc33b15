// The own account: profile, password, logins.

import { request, session } from "../core/api.js";
import { h, replace } from "../core/dom.js";
import { deleteObject, managed } from "../core/kinds.js";
import { link } from "../core/router.js";
import { ATTENTION } from "../core/status.js";
import { timeElement } from "../core/time.js";
import { watchList } from "../core/watch.js";
import { confirmDialog, toast } from "../shell/dialogs.js";
import { signOut } from "../shell/sign-in.js";
import { T } from "../texts/account.js";
import { describeClient } from "../widgets/client.js";
import { button, card, definition, field, tableOf } from "../widgets/common.js";
import { errorBlock } from "../widgets/errors.js";
import { stateBadge } from "../widgets/state.js";
import { expiry } from "./access/expiry.js";

export async function show(page) {
  page.setTitle(T.title);
  const path = managed("users").path("", session.user.name, "profile");
  const profile = await request(path, { signal: page.scope.signal });
  page.main.append(h("div.stack", h("div.halves", profileCard(path, profile), passwordCard(path)), loginsCard(page)));
}

const send = (path, body) => request(path, { method: "POST", body });

// A form that shows the error of `submit` above its button.
function form(fields, label, submit) {
  const problem = h("div");
  const confirm = h("button", { type: "submit" }, label);
  return h(
    "form",
    {
      onsubmit: async (event) => {
        event.preventDefault();
        confirm.disabled = true;
        replace(problem);
        try {
          await submit(event.target);
        } catch (error) {
          replace(problem, errorBlock(error));
        } finally {
          confirm.disabled = false;
        }
      },
    },
    fields,
    problem,
    confirm,
  );
}

const inputField = (label, properties) => field(label, h("input", properties));

function profileCard(path, profile) {
  const facts = definition([
    [T.userName, session.user.name],
    [T.teams, session.user.teams.map((team) => team.displayName || team.name).join(", ")],
    [T.keys, link("ownedaccesskeys", T.allKeys)],
  ]);
  const fields = [
    inputField(T.displayName, { name: "displayName", value: profile.displayName, maxlength: 200 }),
    inputField(T.email, { name: "email", type: "email", value: profile.email }),
  ];
  return card(
    T.profile,
    facts,
    h("p"),
    form(fields, T.save, async ({ elements }) => {
      await send(path, { displayName: elements.displayName.value, email: elements.email.value });
      session.user.displayName = elements.displayName.value || session.user.loginName;
      for (const node of document.querySelectorAll(".account-name")) node.textContent = session.user.displayName;
      toast(T.saved);
    }),
  );
}

function passwordCard(path) {
  const fields = [
    h("input", { type: "text", name: "username", autocomplete: "username", value: session.user.name, hidden: true }),
    inputField(T.currentPassword, { name: "current", type: "password", autocomplete: "current-password" }),
    inputField(T.newPassword, { name: "next", type: "password", autocomplete: "new-password", required: true }),
    inputField(T.repeatPassword, { name: "again", type: "password", autocomplete: "new-password", required: true }),
  ];
  return card(
    T.password,
    h("p.muted", T.passwordRule),
    form(fields, T.changePassword, async (node) => {
      const { current, next, again } = node.elements;
      again.setCustomValidity(next.value === again.value ? "" : T.notEqual);
      if (!again.reportValidity())
        return again.addEventListener("input", () => again.setCustomValidity(""), { once: true });
      await send(path, { password: next.value, ...(current.value && { currentPassword: current.value }) });
      node.reset();
      toast(T.passwordChanged);
    }),
  );
}

function loginsCard(page) {
  const kind = managed("ownedaccesskeys");
  const body = h("tbody");
  const problem = h("div");
  const methods = request("auth/methods").then(
    (value) => value.methods.sso ?? [],
    () => [],
  );
  watchList(kind).subscribe(page.scope, async (list) => {
    const providers = await methods;
    replace(problem, list.error && errorBlock(list.error));
    const logins = list.objects.filter((key) => key.spec?.type === "Login" && key.spec.user === session.user.name);
    logins.sort((a, b) => (b.status?.lastActivity ?? "").localeCompare(a.status?.lastActivity ?? ""));
    replace(
      body,
      logins.map((key) => loginRow(kind, key, providers, problem)),
    );
  });
  const everywhere = async () => {
    if (
      await confirmDialog({
        title: T.signOutEverywhere,
        text: T.signOutEverywhereText,
        confirm: T.signOutEverywhere,
        danger: true,
      })
    )
      await signOut({ everywhere: true });
  };
  return card(
    T.logins,
    h("p.muted", T.loginsText),
    problem,
    tableOf([T.client, T.by, T.lastUsed, T.expires, ""], body, "table.logins"),
    h("p"),
    button(T.signOutEverywhere, { kind: "danger", onclick: everywhere }),
  );
}

// How the user signed in: with a provider, which may not have confirmed the login lately, an access key, or a password.
/**
 * @param {KubernetesObject} login
 * @param {any[]} providers
 */
function loginMethod({ spec, status = {} }, providers) {
  const { connector } = spec.identity ?? {};
  if (spec.oidcProvider?.clientId) return T.allowedHere;
  if (!connector)
    return spec.parent ? [T.byKey, " ", link(`ownedaccesskeys/${spec.parent}`, spec.parent)] : T.byPassword;
  const name = providers.find(({ id }) => id === connector)?.displayName ?? connector;
  if (!status.identity?.stale) return name;
  const { lastAttempt } = status.identity;
  return h(
    "div",
    name,
    " ",
    stateBadge({ state: ATTENTION, word: T.stale, message: T.staleText }),
    lastAttempt && h("span.muted", " ", timeElement(lastAttempt)),
  );
}

function loginRow(kind, key, providers, problem) {
  const isThis = key.metadata.name === session.key;
  const revoke = async () => {
    if (isThis) return signOut();
    await deleteObject(kind, "", key.metadata.name).catch((error) => replace(problem, errorBlock(error)));
  };
  return h(
    "tr",
    h(
      "td",
      { title: key.spec.displayName },
      describeClient(key.spec.displayName) || key.metadata.name,
      isThis && h("strong", ` (${T.thisBrowser})`),
    ),
    h("td", loginMethod(key, providers)),
    h(
      "td",
      key.status?.lastActivity ? timeElement(key.status.lastActivity) : timeElement(key.metadata.creationTimestamp),
    ),
    h("td", expiry(key)),
    h(
      "td",
      button(T.revoke, {
        kind: "quiet",
        "aria-label": T.revokeOf(describeClient(key.spec.displayName) || key.metadata.name),
        onclick: revoke,
      }),
    ),
  );
}
