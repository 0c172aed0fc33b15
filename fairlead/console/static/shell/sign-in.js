// Signing in: a page of its own at first, and over the open page when the login has ended, so that drafts are kept.

import { ApiError, request, session } from "../core/api.js";
import { API, GROUP } from "../core/base.js";
import { forgetReviews } from "../core/access.js";
import { h, newId, replace } from "../core/dom.js";
import { preferences } from "../core/preferences.js";
import { refreshAll } from "../core/watch.js";
import { T } from "../texts/shell.js";

let renewing = null;

session.renew = (signal) => {
  renewing ??= showSignIn(session.user ? T.expired : "").finally(() => { renewing = null; });
  return signal ? Promise.race([renewing, aborted(signal)]) : renewing;
};

const aborted = (signal) => new Promise((_, reject) => {
  if (signal.aborted) reject(signal.reason);
  signal.addEventListener("abort", () => reject(signal.reason), { once: true });
});

// The first request of a visit decides whether there is a login; `session.renew` shows the form if there is none.
export async function signInFirst() {
  await loadSession().catch((error) => { if (error instanceof ApiError && error.code === 401) return session.renew(); });
}

export async function loadSession() {
  const self = await request(`${API}/apis/${GROUP}/v1/selves`, { method: "POST", anonymous: true, body: { apiVersion: `${GROUP}/v1`, kind: "Self", spec: {} } });
  const status = self.status;
  const person = status.user ?? status.team ?? {};
  const isOther = session.user && session.user.name !== (person.name ?? status.subject);
  session.user = { name: person.name ?? status.subject, loginName: person.username || person.name || status.subject, displayName: person.displayName || person.username || person.name || status.subject, email: person.email ?? "", teams: person.teams ?? [], groups: status.groups ?? [] };
  session.key = status.accessKey ?? "";
  session.installation = { id: status.instanceID ?? "", prefix: status.projectNamespacePrefix ?? "" };
  if (isOther) location.reload();  // nothing of the former user may stay on the page
  return !isOther;
}

// The project of a namespace, or "" for a namespace of another kind.
export const projectOf = (namespace = "") => {
  const prefix = session.installation?.prefix;
  return prefix && namespace.startsWith(prefix) ? namespace.slice(prefix.length) : "";
};
export const namespaceOf = (project) => (session.installation?.prefix ?? "") + project;

async function showSignIn(message) {
  const methods = await request("auth/methods", { anonymous: true }).then((value) => value.methods, () => null);
  return new Promise((resolve) => {
    const dialog = h("dialog.sign-in", { "aria-label": T.signIn });
    const done = async () => {
      dialog.close();
      dialog.remove();
      forgetReviews();
      if (!(await loadSession())) return;  // another user: the page is loaded again, and nothing waiting is sent
      resolve();
      refreshAll();
    };
    replace(dialog, h("div.sign-in-brand", h("img", { src: new URL("../icon.svg", import.meta.url).pathname, alt: "", width: 40, height: 40 }), h("p.brand-name", "Fairlead")), signInForm(methods, message, done));
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    document.body.append(dialog);
    dialog.showModal();
  });
}

function signInForm(methods, message, done) {
  const name = field(T.userName, { name: "username", autocomplete: "username", autocapitalize: "none", spellcheck: "false", required: true });
  const password = field(T.password, { name: "password", type: "password", autocomplete: "current-password", required: true });
  const problem = h("p.problem", { role: "alert" }, message);
  const submit = h("button.primary", { type: "submit" }, T.signIn);
  if (methods && methods.password?.enabled === false) return h("form", h("h1", T.signIn), h("p", T.passwordDisabled));
  if (session.user) name.input.value = session.user.loginName;
  const send = async (event) => {
    event.preventDefault();
    submit.disabled = true;
    problem.textContent = "";
    try {
      await request("auth/password/login?cookie=true", { method: "POST", body: { username: name.input.value, password: password.input.value }, anonymous: true });
      await done();
    } catch (error) {
      problem.textContent = error.retryAfter ? T.tooOften(error.retryAfter) : capitalize(error.message);
      password.input.value = "";
      password.input.focus();
    } finally {
      submit.disabled = false;
    }
  };
  return h("form", { onsubmit: send }, h("h1", T.signIn), problem, name.node, password.node, submit, h("details", h("summary", T.noPassword), h("p", T.firstPassword), h("pre", T.firstPasswordCommand)));
}

function field(label, properties) {
  const id = newId("field");
  const input = h("input", { id, ...properties });
  return { input, node: h("div.field", h("label", { for: id }, label), input) };
}

const capitalize = (text) => text.charAt(0).toUpperCase() + text.slice(1);

export async function signOut({ everywhere = false } = {}) {
  await request(`auth/logout${everywhere ? "?all=true" : ""}`, { method: "POST", body: "", type: "application/json", anonymous: true }).catch(() => {});
  for (const name of ["pins", "recent"]) preferences.remove(name);
  location.assign(new URL("../../../", import.meta.url));
}
