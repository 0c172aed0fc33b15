// Creates a workspace, space, virtual cluster or installed app in the order in which people decide: project, template,
// name, parameters. The choices are those that the project offers. All fields are one link away.

import { review } from "../../core/access.js";
import { h, replace } from "../../core/dom.js";
import { createObject, listObjects, managed, pathOf } from "../../core/kinds.js";
import { guardDraft, href, navigate } from "../../core/router.js";
import { announce } from "../../shell/dialogs.js";
import { namespaceOf } from "../../shell/sign-in.js";
import { T } from "../../texts/instances.js";
import { button, empty, field, linkButton, skeleton } from "../../widgets/common.js";
import { errorBlock } from "../../widgets/errors.js";
import { parameterForm, parametersOf } from "../../widgets/form/parameters.js";
import { options, PARTS } from "./parts.js";

const MAX_PROJECTS = 200;

export async function show(page, { kind }) {
  page.setTitle(T.title(kind.title), [[kind.pluralTitle, kind.segment]]);
  const projects = await projectsFor(kind);
  if (!projects.length) return page.main.append(empty(T.noProjects));
  await new CreateInstance(page, kind, projects).start();
}

async function projectsFor(kind) {
  const { items } = await listObjects(managed("projects"), { limit: MAX_PROJECTS });
  const answers = await Promise.all(
    items.map((project) => review({ verb: "create", kind, namespace: namespaceOf(project.metadata.name) })),
  );
  return items.filter(({ metadata }, index) => answers[index].allowed && !metadata.deletionTimestamp);
}

// The options of a required choice. Nothing is chosen for the user unless there is only one.
const choices = (entries, selected, placeholder) =>
  options(
    entries.length === 1 || entries.some(([value]) => value === selected) ? entries : [["", placeholder], ...entries],
    selected,
  );

class CreateInstance {
  #isDone = false;
  #isSending = false;
  #loaded = null;

  constructor(page, kind, projects) {
    const { query } = page;
    this.page = page;
    this.kind = kind;
    this.scope = page.scope;
    this.parts = PARTS[kind.plural];
    this.offers = [];
    this.chosen = null;
    this.parameters = null;
    this.project = h(
      "select",
      { required: true },
      choices(
        projects.map(({ metadata, spec }) => [metadata.name, spec?.displayName || metadata.name]),
        query.get("project"),
        T.chooseProject,
      ),
    );
    this.name = h("input", {
      required: true,
      value: query.get("name") ?? "",
      autocomplete: "off",
      spellcheck: "false",
      pattern: "[a-z0-9]([\\-a-z0-9]*[a-z0-9])?",
      maxlength: 63,
    });
    this.displayName = h("input", { autocomplete: "off", maxlength: 200 });
    this.offerList = h("div.choices", { role: "radiogroup", "aria-label": this.parts.offerTitle });
    this.version = h("select");
    this.versionField = field(T.version, this.version);
    this.versionField.hidden = true; // until something with versions is chosen
    this.place = h("div");
    this.form = h("div");
    this.verdict = h("div", { role: "status" });
  }

  // The form is shown with what the project offers: nothing of it moves afterwards, while it is filled in.
  async start() {
    const { page, kind } = this;
    page.main.append(skeleton(6));
    this.#loaded = this.loadProject();
    await this.#loaded;
    if (this.scope.ended) return;
    const all = linkButton(href(`${kind.segment}/~new`, { form: "all", project: this.project.value }), T.allFields, {
      kind: "quiet",
    });
    replace(
      page.main,
      (this.node = h(
        "form.create-instance",
        {
          onsubmit: (event) => {
            event.preventDefault();
            this.send(false);
          },
        },
        field(T.project, this.project),
        h("fieldset", h("legend", this.parts.offerTitle), this.offerList, this.versionField),
        field(T.name, this.name, T.nameRule),
        field(T.displayName, this.displayName),
        this.place,
        this.form,
        this.verdict,
        h(
          "div.row",
          h("button.primary", { type: "submit" }, this.parts.submit),
          button(T.check, { onclick: () => this.send(true) }),
          linkButton(href(kind.segment), T.cancel, { kind: "quiet" }),
          h("span.spring"),
          all,
        ),
      )),
    );
    this.project.addEventListener("change", () => {
      this.#loaded = this.loadProject();
    });
    this.version.addEventListener("change", () => this.showParameters());
    guardDraft(this.scope, () => !this.#isDone && Boolean(this.name.value || this.parameters?.isDirty()));
  }

  get namespace() {
    return namespaceOf(this.project.value);
  }

  async loadProject() {
    const project = this.project.value;
    Object.assign(this, { chosen: null, readPlace: null, followParameters: null });
    if (!project) return replace(this.offerList, h("p.muted", T.projectFirst));
    this.offerList.setAttribute("aria-busy", "true"); // the offers of the former project keep the place of the new ones
    try {
      const { offers, preferred, place } = await this.parts.load({
        project: this.project.value,
        namespace: this.namespace,
        kind: this.kind,
        query: this.page.query,
        signal: this.scope.signal,
      });
      if (project !== this.project.value) return; // another one has been chosen meanwhile
      this.offers = offers;
      this.readPlace = place.read;
      this.followParameters = place.follow;
      replace(this.place, place.node);
      replace(
        this.offerList,
        offers.map((offer) => this.choice(offer)),
        !offers.length && h("p.muted", T.noTemplates),
      );
      this.choose(offers.find((offer) => offer.metadata.name === preferred) ?? offers[0] ?? null);
    } catch (error) {
      if (!this.scope.ended)
        replace(
          this.offerList,
          errorBlock(error, {
            retry: () => {
              this.#loaded = this.loadProject();
            },
          }),
        );
    } finally {
      if (project === this.project.value) this.offerList.removeAttribute("aria-busy");
    }
  }

  choice(offer) {
    const { metadata, spec = {} } = offer;
    const input = h("input", {
      type: "radio",
      name: "offer",
      value: metadata.name,
      onchange: () => this.choose(offer),
    });
    return h(
      "label.choice",
      input,
      h("span", h("strong", spec.displayName || metadata.name), spec.description && h("span.muted", spec.description)),
    );
  }

  choose(offer) {
    this.chosen = offer;
    for (const input of this.offerList.querySelectorAll("input")) input.checked = input.value === offer?.metadata.name;
    const versions = (offer?.spec?.versions ?? []).map((each) => each.version).filter(Boolean);
    replace(
      this.version,
      options([
        ...(versions.length ? [["x.x.x", T.newest]] : []),
        ...(this.parts.hasUnversioned(offer) ? [["", T.unversioned]] : []),
        ...versions.map((each) => [each, each]),
      ]),
    );
    this.versionField.hidden = !versions.length;
    this.showParameters();
  }

  showParameters() {
    const definitions = this.chosen ? parametersOf(this.chosen, this.version.value) : [];
    this.followParameters?.(definitions);
    const values = Object.fromEntries(
      [...this.page.query]
        .filter(([key]) => key.startsWith("parameter."))
        .map(([key, value]) => [key.slice(10), value]),
    );
    const typed = this.parameters?.value() ?? {};
    this.parameters = definitions.length ? parameterForm(definitions, { ...values, ...typed }) : null;
    replace(this.form, this.parameters && h("fieldset", h("legend", T.parameters), this.parameters.node));
  }

  build() {
    const place = this.readPlace?.() ?? {};
    const text = this.parameters?.text();
    const spec = {
      ...place.spec,
      ...(this.displayName.value && { displayName: this.displayName.value }),
      ...(text && { parameters: text }),
    };
    if (this.chosen)
      spec[this.parts.reference] = {
        name: this.chosen.metadata.name,
        ...(this.version.value && { version: this.version.value }),
      };
    return {
      apiVersion: this.kind.apiVersion,
      kind: this.kind.kind,
      metadata: { name: this.name.value, namespace: this.namespace, ...place.metadata },
      spec,
    };
  }

  async send(dryRun) {
    replace(this.verdict);
    if (!this.node.reportValidity() || this.#isSending) return;
    this.#isSending = true;
    replace(this.verdict, h("p.muted", T.sending));
    try {
      await this.#loaded; // what the project offers may still be on its way
      replace(this.verdict);
      if (!this.readPlace) return;
      const problems = this.parameters?.check() ?? [];
      if (problems.length) return this.parameters.setErrors(problems);
      replace(this.verdict, h("p.muted", T.sending));
      const created = await createObject(this.kind, this.namespace, this.build(), {
        dryRun,
        signal: this.scope.signal,
      });
      if (dryRun) return replace(this.verdict, h("p.notice", T.checked));
      this.#isDone = true;
      announce(this.name.value);
      navigate(pathOf(this.kind, created));
    } catch (error) {
      if (this.scope.ended) return;
      const causes = (error.causes ?? []).filter((cause) => /parameters/.test(cause.field ?? ""));
      if (causes.length) this.parameters?.setErrors(causes);
      replace(this.verdict, errorBlock(error));
    } finally {
      this.#isSending = false;
    }
  }
}
