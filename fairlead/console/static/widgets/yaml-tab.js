// Edits a stored object as YAML. The server parses, validates and prints; this only shows texts, compares and merges
// them.
//
// A draft belongs to the user: a change of the object never rewrites it. When others changed the object meanwhile,
// saving merges by lines, and asks only where both changed the same lines.

import { ApiError, query, request } from "../core/api.js";
import { FIELD_MANAGER } from "../core/base.js";
import { h, replace } from "../core/dom.js";
import { guardDraft } from "../core/router.js";
import { announce } from "../shell/dialogs.js";
import { T } from "../texts/object.js";
import { guardAction, isSecret } from "./access.js";
import { button } from "./common.js";
import { diffView, splitLines } from "./diff.js";
import { errorBlock } from "./errors.js";
import { loadSchema } from "./form/openapi.js";
import { isConflict, merge, mergeView, resolve } from "./merge.js";
import { foldYaml, locateErrors, withServerLines } from "./yaml.js";
import { YamlEditor } from "./yaml-editor.js";

const YAML = "application/yaml";

// What a client can change of an object. Status and bookkeeping change often, and do not concern a draft.
function editablePart({ status, metadata, ...rest }, kind) {
  const { resourceVersion, generation, managedFields, ...own } = metadata;
  return JSON.stringify([rest, own, kind.subresources.has("status") ? null : status]);
}

export function yamlTab(node, context) {
  const start = () => new YamlTab(node, context).load();
  if (!isSecret(context.kind)) return start();
  replace(node, h("p", T.yamlHasSecrets), button(T.showYaml, { onclick: start }));
}

class YamlTab {
  constructor(node, context) {
    this.context = context;
    this.kind = context.kind;
    this.scope = context.scope;
    this.base = "";
    this.showsAll = false;
    this.editor = new YamlEditor({
      label: T.yamlOf(context.object.metadata.name),
      onchange: () => this.update(),
      findSchema: () => loadSchema(context.kind),
    });
    this.banner = h("div", { role: "status" });
    this.panel = h("div.stack");
    this.review = button(T.review, { kind: "primary", onclick: () => this.reviewChanges() });
    this.discard = button(T.discard, { onclick: () => this.load() });
    this.all = h("input", {
      type: "checkbox",
      onchange: () => {
        this.showsAll = this.all.checked;
        this.load();
      },
    });
    const keys = (event) => {
      if (event.key === "s" && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        if (!this.review.disabled) this.reviewChanges();
      }
    };
    this.edit = h(
      "div.stack",
      { onkeydown: keys },
      h("div.row.bar", this.review, this.discard, h("label.row", this.all, T.showAll)),
      this.editor.node,
    );
    replace(node, h("div.stack", this.banner, this.panel, this.edit));
    context.isDirty = () => this.isDirty;
    guardDraft(this.scope, context.isDirty);
    if (!this.kind.verbs.has("update")) this.showReadOnly();
    else
      guardAction(this.review, { verb: "update", kind: this.kind, ...this.names }).then((allowed) => {
        if (!allowed) this.editor.setReadOnly(true);
      });
    context.onChange((object) => this.objectChanged(object));
  }

  showReadOnly() {
    this.review.hidden = true;
    this.discard.hidden = true;
    this.editor.setReadOnly(true);
  }

  get names() {
    return { namespace: this.context.object.metadata.namespace, name: this.context.object.metadata.name };
  }
  get isDirty() {
    return this.editor.value !== this.base;
  }
  fold(text) {
    return this.showsAll ? text : foldYaml(text, this.kind);
  }

  update() {
    const dirty = this.isDirty;
    this.review.disabled = this.discard.disabled = !dirty;
    this.all.disabled = dirty;
  }

  show(...children) {
    replace(this.panel, ...children);
  }

  async attempt(run) {
    this.show();
    try {
      this.editor.setErrors([]);
      await run();
    } catch (error) {
      if (this.scope.ended) return;
      this.edit.hidden = false;
      const isAboutText = error instanceof ApiError && [400, 422].includes(error.code) && this.isDirty;
      if (isAboutText) this.editor.setErrors(locateErrors(error, this.editor.value));
      else this.show(errorBlock(error));
    }
  }

  load() {
    return this.attempt(async () => {
      this.loaded = editablePart(this.context.object, this.kind);
      this.base = this.fold(await this.read());
      this.editor.value = this.base;
      replace(this.banner);
      this.update();
    });
  }

  read() {
    return this.send("GET");
  }

  // Errors are asked for again as JSON: a server that prints YAML prints errors as YAML, too.
  async send(method, body, dryRun) {
    const path =
      this.kind.pathOf(this.context.object) +
      query(
        method === "GET"
          ? {}
          : {
              dryRun: dryRun ? "All" : "",
              fieldManager: FIELD_MANAGER,
              fieldValidation: "Strict",
            },
      );
    const options = { method, body, type: YAML, signal: this.scope.signal };
    const wantsText = method === "GET" || dryRun;
    if (!wantsText) return request(path, options);
    try {
      return await request(path, { ...options, accept: YAML, as: "text" });
    } catch (error) {
      if (error instanceof ApiError && !error.reason) await request(path, options);
      throw error;
    }
  }

  reviewChanges() {
    return this.attempt(async () => {
      const result = await this.write(true);
      if (result === null) return;
      const after = withServerLines(this.fold(result), this.base);
      const view = diffView(this.base, after, { caption: T.wouldChange });
      this.edit.hidden = true;
      const save = view && button(T.save, { kind: "primary", onclick: () => this.save() });
      const back = button(T.back, {
        onclick: () => {
          this.show();
          this.edit.hidden = false;
          this.editor.focus();
        },
      });
      this.show(view ?? h("p", T.noChange), h("div.row", save, back));
      (save ?? back).focus();
    });
  }

  save() {
    return this.attempt(async () => {
      if ((await this.write(false)) === null) return;
      this.base = this.editor.value;
      this.edit.hidden = false;
      await this.load();
      this.show(h("p.notice.done", T.saved));
      announce(T.saved);
      this.editor.focus();
      this.panel.scrollIntoView({ block: "nearest" });
    });
  }

  // Returns null if others changed the object in a way that the user has to see first.
  async write(dryRun) {
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.send("PUT", this.editor.value, dryRun);
      } catch (error) {
        if (!(error instanceof ApiError && error.code === 409) || attempt > 5) throw error;
        if (!(await this.rebase())) return null;
      }
    }
  }

  // Puts the draft on the newest version. True if nothing changed but the version.
  async rebase() {
    const theirs = this.fold(await this.read());
    const [base, mine] = [this.base, this.editor.value].map((text) => withServerLines(text, theirs));
    const parts = merge(...[base, mine, theirs].map(splitLines));
    const apply = (lines, message) => {
      this.base = theirs;
      this.loaded = editablePart(this.context.object, this.kind);
      this.editor.value = lines.join("\n");
      this.edit.hidden = false;
      replace(this.banner);
      this.update();
      if (message)
        this.show(h("div.notice.stack", h("p", message), diffView(base, theirs, { caption: T.changedByOthers })));
    };
    if (base === theirs) apply(splitLines(mine));
    else if (!parts.some(isConflict)) apply(resolve(parts), T.mergedReview);
    else {
      this.edit.hidden = true;
      this.show(
        mergeView(
          parts,
          (lines) => apply(lines, T.mergedReview),
          () => {
            this.show();
            this.edit.hidden = false;
          },
        ),
      );
      this.panel.querySelector("input")?.focus();
    }
    return base === theirs;
  }

  objectChanged(object) {
    if (!this.base || this.scope.ended) return;
    const part = editablePart(object, this.kind);
    // Read before the watch told it.
    if (this.base.includes(`  resourceVersion: "${object.metadata.resourceVersion}"`)) this.loaded = part;
    if (part === this.loaded) replace(this.banner);
    else if (!this.banner.firstChild) {
      const changes = h("div");
      replace(
        this.banner,
        h(
          "div.notice.stack",
          h(
            "div.row",
            h("span", T.changedMeanwhile),
            button(T.showChanges, {
              onclick: () =>
                this.attempt(async () => {
                  const now = this.fold(await this.read());
                  replace(
                    changes,
                    diffView(withServerLines(this.base, now), now, { caption: T.changedByOthers }) ?? T.noChange,
                  );
                }),
            }),
            button(T.loadNew, { onclick: () => (this.isDirty ? this.attempt(() => this.rebase()) : this.load()) }),
          ),
          changes,
        ),
      );
    }
  }
}
