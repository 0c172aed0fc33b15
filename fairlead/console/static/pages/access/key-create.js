// Creating an access key: what it may do is said in words and can be tried before the key exists.

import { guard } from "../../core/access.js";
import { session } from "../../core/api.js";
import { h, newId, replace } from "../../core/dom.js";
import { createObject, getObject } from "../../core/kinds.js";
import { guardDraft, navigate } from "../../core/router.js";
import { T } from "../../texts/access.js";
import { card, field } from "../../widgets/common.js";
import { errorBlock } from "../../widgets/errors.js";
import { ttlEnd } from "./expiry.js";
import { tester } from "./question.js";
import { scopeEditor, scopeWords } from "./scope.js";
import { showValue } from "./value.js";

const DEFAULT_TTL = 604_800;
const MARGIN = 60; // seconds for filling in the form

export async function show(page, { kind }) {
  page.setTitle(T.createKey, [[kind.pluralTitle, kind.segment]]);
  const name = h("input", { id: newId("field"), required: true, maxlength: 200, autocomplete: "off" });
  const ttl = lifetimes(await remainingLogin(kind, page.scope.signal));
  const words = h("div", { "aria-live": "polite" });
  const problem = h("div");
  const scope = scopeEditor(() => describe());
  const describe = () => {
    try {
      replace(words, scopeWords(scope.value()));
    } catch (error) {
      replace(words, h("p.error", error.message));
    }
  };
  let isDone = false;
  const submit = async (event) => {
    event.preventDefault();
    if (confirm.getAttribute("aria-disabled") === "true") return;
    replace(problem);
    confirm.disabled = true;
    try {
      const body = draft(kind, name.value.trim(), Number(ttl.value), scope.value());
      const created = await createObject(kind, "", body, {
        onWarnings: (all) => scope.shownWarnings(all).length && session.warn(scope.shownWarnings(all)),
      });
      isDone = true;
      const value = created.spec.key;
      await showValue(T.created, value);
      if (!page.scope.ended) navigate(`${kind.segment}/${encodeURIComponent(created.metadata.name)}`);
    } catch (error) {
      replace(problem, error.code ? errorBlock(error) : h("p.error", { role: "alert" }, error.message));
    } finally {
      confirm.disabled = false;
    }
  };
  const confirm = h("button.primary", { type: "submit" }, T.create);
  guard(confirm, { verb: "create", kind });
  guardDraft(page.scope, () => !isDone && Boolean(name.value));
  page.main.append(
    h(
      "div.columns",
      card(
        "",
        h(
          "form.stack",
          { onsubmit: submit },
          field(T.keyName, name),
          field(T.lifetime, ttl),
          scope.node,
          problem,
          h("div", confirm),
        ),
      ),
      h(
        "div.stack",
        card("", words),
        card(
          T.tester,
          tester(T.aKey, () => ({ scope: scope.value() }), page.scope),
        ),
      ),
    ),
  );
  describe();
  name.focus();
}

// No key outlives the one that issued it: seconds that are left of this login, Infinity if it does not end.
async function remainingLogin(kind, signal) {
  const key = session.key && (await getObject(kind, "", session.key, { signal }).catch(() => null));
  return key ? Math.floor((ttlEnd(key) - Date.now()) / 1000) - MARGIN : Infinity;
}

function lifetimes(most) {
  const choices = Object.keys(T.lifetimes)
    .map(Number)
    .map((seconds) => [seconds, T.lifetimes[seconds], (seconds || Infinity) > most]);
  if (most < Infinity) choices.push([most, T.likeLogin, false]);
  choices.sort(([a], [b]) => (a || Infinity) - (b || Infinity) || 0);
  const chosen = Math.min(DEFAULT_TTL, most);
  return h(
    "select",
    { title: most < Infinity ? T.outlives : null },
    choices.map(([value, label, disabled]) => h("option", { value, disabled, selected: value === chosen }, label)),
  );
}

function draft(kind, displayName, ttl, scope) {
  const start =
    displayName
      .toLowerCase()
      .replace(/[^a-z0-9]+/g, "-")
      .replace(/^-|-$/g, "")
      .slice(0, 40) || "key";
  return {
    apiVersion: kind.apiVersion,
    kind: kind.kind,
    metadata: { generateName: `${start}-` },
    spec: { displayName, ...(ttl && { ttl }), ...(scope && { scope }) },
  };
}
