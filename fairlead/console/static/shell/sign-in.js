// Signing in: a page of its own at first, and over the open page when the login has ended, so that drafts are kept.

import { forgetReviews } from "../core/access.js";
import { request, session } from "../core/api.js";
import { API, CONSOLE, GROUP, ROOT } from "../core/base.js";
import { h, replace, Scope } from "../core/dom.js";
import { preferences } from "../core/preferences.js";
import { hasDraft, setQuery } from "../core/router.js";
import { refreshAll } from "../core/watch.js";
import { T } from "../texts/sign-in.js";
import { button, field } from "../widgets/common.js";
import { sentence } from "../widgets/errors.js";
import { confirmDialog } from "./dialogs.js";

export const NO_PROBLEM = { signInError: "", connector: "" };
let renewing = null;

// Tabs of one browser share the login: the others ask whether theirs has ended.
const tabs = new BroadcastChannel("fairlead.login");
tabs.onmessage = () => {
  if (session.user) loadSession({ asks: true }).catch(() => {});
};

session.renew = (signal) => {
  renewing ??= showSignIn(session.user ? T.expired : "").finally(() => {
    renewing = null;
  });
  return signal ? Promise.race([renewing, aborted(signal)]) : renewing;
};

const aborted = (signal) =>
  new Promise((_, reject) => {
    if (signal.aborted) reject(signal.reason);
    signal.addEventListener("abort", () => reject(signal.reason), { once: true });
  });

// Who is signed in. `asks`: shows the form if no one is, as for any other request.
export async function loadSession({ asks = false } = {}) {
  const self = await request(`${API}/apis/${GROUP}/v1/selves`, {
    method: "POST",
    anonymous: !asks,
    body: { apiVersion: `${GROUP}/v1`, kind: "Self", spec: {} },
  });
  const status = self.status;
  const person = status.user ?? status.team ?? {};
  const { impersonator = "" } = status;
  const isOther =
    session.user &&
    (session.user.name !== (person.name ?? status.subject) || session.user.impersonator !== impersonator);
  session.user = {
    name: person.name ?? status.subject,
    loginName: person.username || person.name || status.subject,
    displayName: person.displayName || person.username || person.name || status.subject,
    email: person.email ?? "",
    teams: person.teams ?? [],
    groups: status.groups ?? [],
    impersonator,
  };
  session.key = status.accessKey ?? "";
  session.scope = status.accessKeyScope ?? null; // of that key: this session may do less than its user
  session.installation = { id: status.instanceID ?? "", prefix: status.projectNamespacePrefix ?? "" };
  if (isOther) location.reload(); // nothing of the former user may stay on the page
  return !isOther;
}

// The project of a namespace, or "" for a namespace of another kind.
export const projectOf = (namespace = "") => {
  const prefix = session.installation?.prefix;
  return prefix && namespace.startsWith(prefix) ? namespace.slice(prefix.length) : "";
};
export const namespaceOf = (project) => (session.installation?.prefix ?? "") + project;

async function showSignIn(message) {
  const methods =
    (await request("auth/methods", { anonymous: true }).then(
      (value) => value.methods,
      () => null,
    )) ?? {};
  return new Promise((resolve) => {
    const dialog = h("dialog.sign-in", { "aria-label": T.signIn });
    const scope = new Scope();
    const done = async () => {
      if (!(await loadSession())) return; // another user: the page is loaded again, and nothing waiting is sent
      scope.end();
      dialog.close();
      dialog.remove();
      forgetReviews();
      setQuery(NO_PROBLEM);
      resolve();
      refreshAll();
    };
    const retry = () => !document.hidden && done().catch(() => {}); // signed in meanwhile, in another tab
    scope.listen(document, "visibilitychange", retry);
    scope.listen(window, "focus", retry);
    const brand = h(
      "div.sign-in-brand",
      h("img", { src: new URL("../icon.svg", import.meta.url).pathname, alt: "", width: 40, height: 40 }),
      h("p.brand-name", "Fairlead"),
    );
    replace(
      dialog,
      brand,
      h("h1", T.signIn),
      h("p.problem", { role: "alert" }, signOnProblem(methods) || message),
      providers(methods.sso ?? []),
      ownCredentials(methods, done),
    );
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    document.body.append(dialog);
    dialog.showModal();
  });
}

// What a failed sign-on says: a fixed text for its reason, which is in the address until the user is signed in.
export function signOnProblem({ sso = [] } = {}) {
  const parameters = new URLSearchParams(location.search);
  const reason = parameters.get("signInError");
  if (!reason) return "";
  const provider = sso.find(({ id }) => id === parameters.get("connector"))?.displayName ?? T.theProvider;
  return `${T.failed(provider)} ${Object.hasOwn(T.reasons, reason) ? T.reasons[reason] : T.otherReason}`;
}

// Single sign-on comes back to this page. A page with unsaved changes stays open, and the provider gets another tab.
function providers(all) {
  const isDraft = hasDraft();
  const address = (endpoint, path) =>
    `${new URL(endpoint.replace(/^\//, ""), ROOT).pathname}?${new URLSearchParams({ return: `/console/${path}` })}`;
  const parameters = new URLSearchParams(location.search);
  for (const name of Object.keys(NO_PROBLEM)) parameters.delete(name);
  const here = location.pathname.slice(CONSOLE.pathname.length) + (parameters.size ? `?${parameters}` : "");
  const open = (event, endpoint) => {
    if (!isDraft) return;
    event.preventDefault();
    window.open(address(endpoint, "signed-in"), "_blank");
  };
  return (
    all.length > 0 &&
    h(
      "div.providers",
      isDraft && h("p.muted", T.elsewhere),
      all.map(({ id, displayName, loginEndpoint }) =>
        h(
          "a.button.primary",
          { href: address(loginEndpoint, here), onclick: (event) => open(event, loginEndpoint) },
          T.with(displayName || id),
        ),
      ),
    )
  );
}

// Password and access key. The key is for those who have no password yet: the first start of a server prints one.
function ownCredentials({ sso = [], password: { enabled = true, used = true } = {} }, done) {
  const node = h("div");
  const showPassword = () => replace(node, passwordForm(sso.length > 0, done), another(T.useKey, showKey));
  const showKey = () => replace(node, keyForm(done), enabled && another(T.usePassword, showPassword));
  const another = (title, show) =>
    button(title, {
      kind: "quiet",
      onclick: () => {
        show();
        node.querySelector("input").focus();
      },
    });
  if (enabled && used) showPassword();
  else if (sso.length) replace(node, another(T.useKey, showKey));
  else showKey();
  return node;
}

// A form whose button sends what was typed, and that shows beside its fields why the server did not accept it.
function credentialForm({ note, fields, secret, isPrimary, send }) {
  const problem = h("p.problem", { role: "alert" });
  const submit = h("button", { type: "submit" }, T.signIn);
  if (isPrimary) submit.classList.add("primary");
  const onsubmit = async (event) => {
    event.preventDefault();
    submit.disabled = true;
    problem.textContent = "";
    try {
      await send();
    } catch (error) {
      problem.textContent = error.retryAfter ? T.tooOften(error.retryAfter) : sentence(error.message);
      secret.value = "";
      secret.focus();
    } finally {
      submit.disabled = false;
    }
  };
  return h("form", { onsubmit }, note && h("p.muted", note), problem, fields, submit);
}

function passwordForm(hasProviders, done) {
  const name = h("input", {
    name: "username",
    autocomplete: "username",
    autocapitalize: "none",
    spellcheck: "false",
    required: true,
  });
  const password = h("input", {
    name: "password",
    type: "password",
    autocomplete: "current-password",
    required: true,
  });
  if (session.user) name.value = session.user.impersonator || session.user.loginName;
  const send = async () => {
    const body = { username: name.value, password: password.value };
    await request("auth/password/login?cookie=true", { method: "POST", body, anonymous: true });
    await done();
  };
  const fields = [field(T.userName, name), field(T.password, password)];
  return credentialForm({
    note: hasProviders && T.orPassword,
    fields,
    secret: password,
    isPrimary: !hasProviders,
    send,
  });
}

// The key leaves this page in one request: the server sets a cookie that scripts cannot read.
function keyForm(done) {
  const key = h("input", {
    name: "accessKey",
    type: "password",
    autocomplete: "off",
    spellcheck: "false",
    required: true,
  });
  const send = async () => {
    const answer = await request("auth/key/login", { method: "POST", body: { accessKey: key.value }, anonymous: true });
    session.canSetPassword = answer.canSetPassword;
    await done();
  };
  return credentialForm({ fields: field(T.accessKey, key, T.accessKeyHelp), secret: key, isPrimary: true, send });
}

// Ends this login, or all of the user. A provider of single sign-on still has a session, which the user can end, too.
export async function signOut({ everywhere = false, to = ROOT } = {}) {
  const answer = await request(`auth/logout${everywhere ? "?all=true" : ""}`, {
    method: "POST",
    body: "",
    type: "application/json",
    anonymous: true,
  }).catch(() => null);
  tabs.postMessage("signed out");
  for (const name of ["pins", "recent"]) preferences.remove(name);
  sessionStorage.clear();
  const address = /^https?:/.test(answer?.providerLogoutURL ?? "") ? answer.providerLogoutURL : "";
  const isWanted =
    address &&
    (await confirmDialog({ title: T.signedOut, text: T.providerSession, confirm: T.signOutThere, cancel: T.stay }));
  location.assign(isWanted ? address : to);
}
