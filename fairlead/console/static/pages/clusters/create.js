// Creates objects in a cluster, space or virtual cluster from YAML, as `kubectl create` does. The cluster reads the
// YAML; only the lines that say where a document belongs are read here.

import { query, request } from "../../core/api.js";
import { FIELD_MANAGER } from "../../core/base.js";
import { h, replace } from "../../core/dom.js";
import { guardDraft } from "../../core/router.js";
import { announce } from "../../shell/dialogs.js";
import { T } from "../../texts/clusters.js";
import { button } from "../../widgets/common.js";
import { errorBlock } from "../../widgets/errors.js";
import { loadSchema } from "../../widgets/form/openapi.js";
import { objectLink } from "../../widgets/owners.js";
import { YamlEditor } from "../../widgets/yaml-editor.js";

const MAX_DOCUMENTS = 100;
const YAML = "application/yaml";

export function showCreate(page, server) {
  const verdict = h("div", { role: "status" });
  const editor = new YamlEditor({
    label: T.yamlToCreate,
    onchange: () => replace(verdict),
    findSchema: async (apiVersion, name) => {
      const kind = server.findKind(name, apiVersion);
      return kind ? loadSchema(kind) : null;
    },
  });
  let isSending = false;
  let isDone = false;
  const send = async (dryRun) => {
    if (isSending) return;
    isSending = true;
    replace(verdict, h("p.muted", T.sending));
    const results = [];
    try {
      for (const document of readDocuments(editor.value, server))
        results.push(await createDocument(document, dryRun, page.scope.signal));
      isDone = !dryRun;
      replace(verdict, resultList(results, dryRun));
      announce(dryRun ? T.checkedYaml : T.createdYaml);
    } catch (error) {
      if (page.scope.ended) return;
      const problem =
        error instanceof DocumentError ? h("p.error", { role: "alert" }, error.message) : errorBlock(error);
      replace(verdict, results.length > 0 && resultList(results, dryRun), problem);
    } finally {
      isSending = false;
    }
  };
  guardDraft(page.scope, () => !isDone && Boolean(editor.value.trim()));
  replace(
    page.main,
    h(
      "div.stack",
      h("p.muted", server.namespace ? T.createHint(server.namespace) : T.createHintAll),
      editor.node,
      h(
        "div.row",
        button(T.createObjects, { kind: "primary", onclick: () => send(false) }),
        button(T.checkObjects, { onclick: () => send(true) }),
      ),
      verdict,
    ),
  );
  editor.focus();
}

class DocumentError extends Error {}

// The documents of a text, with the kind and the namespace of each. Raises DocumentError for one that belongs nowhere.
function readDocuments(text, server) {
  const documents = text.split(/^---[ \t]*(?:#.*)?$/m).filter((each) => /^\s*[^\s#]/m.test(each));
  if (!documents.length) throw new DocumentError(T.noDocuments);
  if (documents.length > MAX_DOCUMENTS) throw new DocumentError(T.tooManyDocuments(MAX_DOCUMENTS));
  return documents.map((body, index) => {
    const apiVersion = readField(body, "apiVersion");
    const name = readField(body, "kind");
    if (!apiVersion || !name) throw new DocumentError(T.noTypeOf(index + 1));
    const kind = server.findKind(name, apiVersion);
    if (!kind) throw new DocumentError(T.unknownType(index + 1, name, apiVersion));
    const [metadata = ""] = /^metadata:[ \t]*\n(?:[ \t]+.*\n?|\s*\n)*/m.exec(body) ?? [];
    const namespace = readField(metadata, "[ \\t]+namespace") || server.namespace || "default";
    return { body, kind, namespace: kind.namespaced ? namespace : "" };
  });
}

const readField = (text, name) => new RegExp(`^${name}:[ \\t]*["']?([^\\s"'#]+)`, "m").exec(text)?.[1] ?? "";

async function createDocument({ body, kind, namespace }, dryRun, signal) {
  const parameters = query({ fieldManager: FIELD_MANAGER, fieldValidation: "Strict", dryRun: dryRun ? "All" : "" });
  const created = await request(kind.path(namespace) + parameters, { method: "POST", body, type: YAML, signal });
  return { kind, metadata: created.metadata };
}

const resultList = (results, dryRun) =>
  h(
    "div.notice.done",
    h("p", dryRun ? T.checkedYaml : T.createdYaml),
    h(
      "ul.plain",
      results.map(({ kind, metadata }) =>
        h("li", `${kind.title} `, dryRun ? metadata.name : objectLink(kind, metadata, metadata.name)),
      ),
    ),
  );
