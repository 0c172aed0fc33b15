// The page of an access key: what it may do, in words and to try; rotation and disabling.

import { request, session } from "../../core/api.js";
import { h, replace } from "../../core/dom.js";
import { patchObject } from "../../core/kinds.js";
import { link } from "../../core/router.js";
import { timeElement } from "../../core/time.js";
import { confirmDialog, openDialog } from "../../shell/dialogs.js";
import { T } from "../../texts/access.js";
import { describeLogin } from "../../widgets/client.js";
import { card, definition, field } from "../../widgets/common.js";
import { errorBlock } from "../../widgets/errors.js";
import { expiry } from "./expiry.js";
import { tester } from "./question.js";
import { scopeWords } from "./scope.js";
import { showValue } from "./value.js";

/** @param {KubernetesObject} key */
export const title = ({ spec }) => describeLogin(spec?.displayName ?? "");

export function summary(context) {
  const { object, scope } = context;
  const facts = context.live(({ metadata, spec, status }) => [metadata.annotations, spec, status], factList);
  const words = context.live(
    ({ spec }) => spec?.scope,
    ({ spec }) => scopeWords(spec?.scope),
  );
  return h(
    "div.columns",
    h("div.stack", card(T.facts, facts), card(T.scope, words)),
    card(
      T.tester,
      tester(T.keyCalled(object.metadata.name), () => ({ accessKey: object.metadata.name }), scope),
    ),
  );
}

function factList(key) {
  const { spec = {}, status = {}, metadata } = key;
  const owner = spec.user
    ? link(`users/${encodeURIComponent(spec.user)}`, spec.user)
    : spec.team
      ? link(`teams/${encodeURIComponent(spec.team)}`, spec.team)
      : spec.subject;
  return h(
    "div.stack",
    spec.disabled && h("div.notice", T.isDisabled),
    status.expired && h("div.notice", T.expired),
    metadata.name === session.key && h("p", T.isThisLogin),
    definition([
      [T.owner, owner],
      [T.type, spec.type || "User"],
      [T.expires, expiry(key)],
      [T.lastUsed, status.lastActivity ? timeElement(status.lastActivity) : T.notUsed],
    ]),
  );
}

// Disables or enables a key or a user, after a question for the former.
export function toggleAction(context, text) {
  const { kind, object } = context;
  const { name } = object.metadata;
  const isDisabled = Boolean(object.spec?.disabled);
  const run = async () => {
    if (
      !isDisabled &&
      !(await confirmDialog({
        title: T.disableTitle(object.spec?.displayName || name),
        text,
        confirm: T.disable,
        danger: true,
      }))
    )
      return;
    try {
      context.update(await patchObject(kind, "", name, { spec: { disabled: !isDisabled } }));
    } catch (error) {
      openDialog({ title: T.disable, body: errorBlock(error) });
    }
  };
  return {
    title: isDisabled ? T.enable : T.disable,
    icon: isDisabled ? "play" : "stop",
    question: { verb: "patch", kind, name },
    run,
  };
}

export function actions(context) {
  const { kind, object } = context;
  const { name } = object.metadata;
  return [
    {
      title: T.rotate,
      icon: "key",
      question: { verb: "create", kind, name, subresource: "rotate" },
      run: () => rotate(kind, name),
    },
    toggleAction(context, T.disableKey),
  ];
}

async function rotate(kind, name) {
  const overlap = h(
    "select",
    Object.keys(T.overlaps).map((seconds) =>
      h("option", { value: seconds, selected: seconds === "3600" }, T.overlaps[seconds]),
    ),
  );
  const problem = h("div");
  const run = async (close) => {
    try {
      const body = {
        apiVersion: kind.apiVersion,
        kind: "OwnedAccessKeyRotation",
        spec: { overlapSeconds: Number(overlap.value) },
      };
      close((await request(kind.path("", name, "rotate"), { method: "POST", body })).spec.key);
    } catch (error) {
      replace(problem, errorBlock(error));
    }
  };
  const value = await openDialog({
    title: T.rotateTitle,
    body: h("div.stack", field(T.overlap, overlap), problem),
    actions: [{ title: T.cancel }, { title: T.rotateNow, kind: "primary", run }],
  });
  if (value) await showValue(T.rotated, value);
}
