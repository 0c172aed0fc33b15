// Creates an object of any kind: a form from its schema, or YAML. Both show the same draft, which stays in memory only,
// because it may contain passwords. Parameters of the URL fill it in:
// `?name=a&project=demo&spec.templateRef.name=small`.

import { query, request, session } from "../core/api.js";
import { FIELD_MANAGER } from "../core/base.js";
import { h, replace } from "../core/dom.js";
import { pathOf } from "../core/kinds.js";
import { guardDraft, href, navigate } from "../core/router.js";
import { announce } from "../shell/dialogs.js";
import { T } from "../texts/form.js";
import { button, codeBlock, linkButton, tabsOf } from "../widgets/common.js";
import { errorBlock } from "../widgets/errors.js";
import { schemaForm } from "../widgets/form/form.js";
import { identityFields } from "../widgets/form/identity.js";
import { loadSchema, resolve, shapeOf } from "../widgets/form/openapi.js";
import { templateParameters } from "../widgets/form/parameters.js";
import { emit, parse } from "../widgets/form/yaml.js";
import { warningBlock } from "../widgets/warnings.js";
import { locateErrors } from "../widgets/yaml.js";
import { YamlEditor } from "../widgets/yaml-editor.js";

export async function show(page, { kind, namespace }) {
  page.setTitle(T.create(kind.title), [[kind.pluralTitle, kind.segment]]);
  const schema = await loadSchema(kind);
  new CreatePage(page, kind, schema, prefill(page.query, kind, schema, namespace));
}

// A draft from the parameters of the URL. Only fields of the schema are set, with its types.
function prefill(parameters, kind, schema, namespace) {
  const draft = { apiVersion: kind.apiVersion, kind: kind.kind, metadata: { name: parameters.get("name") ?? "" } };
  if (kind.namespaced) draft.metadata.namespace = namespace || parameters.get("namespace") || "";
  const values = {};
  for (const [key, value] of parameters) {
    if (key.startsWith("parameter.")) values[key.slice(10)] = value;
    else if (key.includes(".")) setField(draft, key.split("."), value, schema, schema.document);
  }
  if (Object.keys(values).length) (draft.spec ??= {}).parameters = `${emit(values)}\n`;
  return draft;
}

/**
 * @param {any} target
 * @param {string[]} path
 * @param {string} text
 * @param {any} parent
 * @param {any} document
 */
function setField(target, path, text, parent, document) {
  const [name, ...rest] = path;
  const known = Object.hasOwn(parent.properties ?? {}, name) ? parent.properties[name] : parent.additionalProperties;
  if (!known || name === "__proto__") return;
  const schema = resolve(known, document);
  const shape = shapeOf(schema);
  if (rest.length && shape === "map") setField((target[name] ??= {}), [rest.join(".")], text, schema, document);
  else if (rest.length && shape === "object") setField((target[name] ??= {}), rest, text, schema, document);
  if (rest.length) return;
  try {
    target[name] = ["text", "password", "enum"].includes(shape)
      ? text
      : shape === "list" && text[0] !== "["
        ? text.split(",")
        : parse(text);
  } catch {
    /* a value that cannot be read is left out */
  }
}

class CreatePage {
  #isEdited = false;

  constructor(page, kind, schema, draft) {
    this.page = page;
    this.kind = kind;
    this.schema = schema;
    this.draft = draft;
    this.form = null;
    this.text = null;
    this.verdict = h("div.verdict");
    this.tabs = tabsOf(
      [
        { name: "form", title: T.form, show: (node) => this.showForm(node) },
        { name: "yaml", title: T.yaml, show: (node) => this.showText(node) },
      ],
      "form",
      (name) => this.change(name),
    );
    this.buttons = [
      button(T.createButton, { kind: "primary", type: "submit" }),
      button(T.check, { onclick: () => this.send(true) }),
    ];
    page.main.append(
      h(
        "form.create",
        {
          novalidate: true,
          onsubmit: (event) => {
            event.preventDefault();
            this.send(false);
          },
        },
        this.tabs.node,
        this.verdict,
        h("div.form-actions", this.buttons, linkButton(href(kind.segment), T.cancel, { kind: "quiet" })),
      ),
    );
    setTimeout(() => this.identity.focus()); // after the page is in the document
    guardDraft(page.scope, () => this.#isEdited);
  }

  showForm(node) {
    const { kind, schema, draft } = this;
    const onchange = () => this.changed();
    const hasParameters = resolve(schema.properties?.spec, schema.document).properties?.parameters?.type === "string";
    this.text = null;
    this.identity = identityFields(kind, draft.metadata, this.page, { onchange });
    this.parameters = hasParameters ? templateParameters(kind, draft.spec?.parameters, onchange) : null;
    this.form = schemaForm({
      kind,
      schema,
      value: draft,
      exclude: hasParameters ? ["spec.parameters", "spec.parameterSecrets"] : [],
      namespace: () => this.identity.get().namespace,
      onchange,
    });
    // The last one with a problem gets the focus.
    this.parts = [this.parameters, this.form, this.identity].filter(Boolean);
    this.parameters?.follow(draft.spec);
    replace(node, h("div.create-form", this.identity.node, this.form.node, this.parameters?.node));
  }

  showText(node) {
    this.text = new YamlEditor({
      value: `${emit(this.draft)}\n`,
      label: T.yamlLabel,
      onchange: () => this.changed(),
      findSchema: async () => this.schema,
    });
    replace(node, this.text.node);
  }

  changed() {
    this.#isEdited = true;
    replace(this.verdict);
    if (!this.text) this.parameters?.follow(this.form.value().spec);
  }

  collect() {
    if (this.text) return this.draft;
    const found = { ...this.form.value() };
    found.metadata = JSON.parse(JSON.stringify({ ...found.metadata, ...this.identity.get() }));
    const parameters = this.parameters?.text();
    if (parameters || found.spec?.parameters) found.spec = { ...found.spec, parameters };
    return found;
  }

  // Called before the tab changes; false keeps the current one.
  change(name) {
    try {
      this.draft = name === "yaml" ? this.collect() : parse(this.text.value);
      this.draft.metadata ??= {};
      return true;
    } catch {
      this.readByServer();
      return false;
    }
  }

  // YAML that only the server can read. What it returns has no passwords.
  async readByServer() {
    try {
      const {
        metadata: { name, generateName, namespace, labels, annotations },
        status,
        ...rest
      } = await this.post(true);
      this.draft = JSON.parse(
        JSON.stringify({ ...rest, metadata: { name, generateName, namespace, labels, annotations } }),
      );
      this.tabs.select("form");
      replace(this.verdict, h("p.notice", T.readByServer));
    } catch (error) {
      this.showError(error);
    }
  }

  post(dryRun, onWarnings) {
    const body = this.text?.value ?? this.collect();
    const namespace = this.text
      ? /^metadata:(?:\n[ \t].*)*?\n[ \t]+namespace:[ \t]*["']?([^\s"']+)/m.exec(body)?.[1]
      : body.metadata.namespace;
    const path =
      this.kind.path(namespace) +
      query({ dryRun: dryRun ? "All" : "", fieldManager: FIELD_MANAGER, fieldValidation: "Strict" });
    const type = this.text ? "application/yaml" : "application/json";
    return request(path, { method: "POST", body, type, signal: this.page.scope.signal, onWarnings });
  }

  async send(dryRun) {
    if (this.buttons[0].disabled || !this.checkForm()) return;
    for (const each of this.buttons) each.disabled = true;
    replace(this.verdict, h("p.muted", T.checking));
    try {
      let warnings = [];
      const object = await this.post(dryRun, (found) => {
        warnings = found;
      });
      this[dryRun ? "showVerdict" : "finish"](object, warnings);
    } catch (error) {
      if (error.name !== "AbortError") this.showError(error);
    } finally {
      for (const each of this.buttons) each.disabled = false;
    }
  }

  checkForm() {
    if (this.text) return true;
    const problems = this.parts.map((part) => part.check());
    this.parts.forEach((part, index) => {
      if (problems[index].length) part.setErrors(problems[index]);
    });
    const isValid = !problems.flat().length;
    if (!isValid) replace(this.verdict, h("p.problem", { role: "alert" }, T.fix));
    return isValid;
  }

  showVerdict({ metadata }, warnings) {
    replace(
      this.verdict,
      h("div.notice", { role: "status" }, h("p", T.valid(metadata?.name || this.kind.title))),
      warningBlock(warnings),
    );
  }

  // Causes go to their fields, and all of the error is shown above the buttons.
  showError(error) {
    replace(this.verdict, errorBlock(error));
    if (this.text)
      return this.text.setErrors(error.code === 400 || error.code === 422 ? locateErrors(error, this.text.value) : []);
    const causes =
      error.reason === "AlreadyExists"
        ? [{ field: "metadata.name", message: error.message }]
        : (error.causes ?? []).filter((cause) => cause.field);
    const owner = ({ field }) =>
      /^metadata\.(\w*name|namespace)$/i.test(field)
        ? this.identity
        : this.parameters && /^spec\.parameter/.test(field)
          ? this.parameters
          : this.form;
    const byPart = Map.groupBy(causes, owner);
    for (const part of this.parts) if (byPart.has(part)) part.setErrors(byPart.get(part));
    if (!causes.length) this.verdict.scrollIntoView({ block: "nearest" });
  }

  finish(object, warnings) {
    const secrets = newSecrets(object, this.text ? {} : this.collect(), this.schema, this.schema.document);
    const isStored = this.kind.verbs.has("get");
    this.#isEdited = false;
    if (warnings.length) session.warn(warnings);
    if (isStored) announce(T.created(object.metadata.name));
    if (isStored && !secrets.length) return navigate(pathOf(this.kind, object));
    replace(
      this.page.main,
      h(
        "div.stack",
        h("h2", isStored ? T.created(object.metadata.name) : T.result),
        secrets.length > 0
          ? h(
              "div.notice",
              h("p", T.shownOnce),
              secrets.map(([path, value]) => [h("p", h("code", path)), codeBlock(value)]),
            )
          : codeBlock(emit(object.status ?? object)),
        isStored && h("div.row", linkButton(href(pathOf(this.kind, object)), T.openObject, { kind: "primary" })),
      ),
    );
  }
}

// Passwords and keys that the response contains and the request did not: the server made them, and shows them once.
function newSecrets(value, sent, parent, document, path = "") {
  return Object.entries(value ?? {}).flatMap(([name, each]) => {
    const schema = resolve(parent.properties?.[name], document);
    if (schema.format === "password" && each && each !== sent?.[name]) return [[path + name, each]];
    return schema.properties && typeof each === "object"
      ? newSecrets(each, sent?.[name], schema, document, `${path}${name}.`)
      : [];
  });
}
