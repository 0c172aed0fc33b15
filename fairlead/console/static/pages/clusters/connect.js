// Connects a cluster in steps: a name, a kubeconfig, and the checks of the server, live. It does what `fairlead cluster
// add` does: a Secret with the kubeconfig, and a Cluster that refers to it. The kubeconfig stays in memory until it is
// sent.

import { review } from "../../core/access.js";
import { ApiError } from "../../core/api.js";
import { ROOT } from "../../core/base.js";
import { h, replace } from "../../core/dom.js";
import { createObject, deleteObject, getObject, managed, management, patchObject } from "../../core/kinds.js";
import { guardDraft, href, setQuery } from "../../core/router.js";
import { condition } from "../../core/status.js";
import { watchObject } from "../../core/watch.js";
import { announce } from "../../shell/dialogs.js";
import { T } from "../../texts/clusters.js";
import { button, card, codeBlock, empty, field, linkButton, skeleton } from "../../widgets/common.js";
import { errorBlock } from "../../widgets/errors.js";
import { stateBadge } from "../../widgets/state.js";
import { probeList } from "./health.js";

const NAMESPACE = "service-system";
const KEY = "config";
const LABEL = "service.sh/cluster-kubeconfig";
const MAX_BYTES = 256 * 1024;
const secretName = (cluster) => `cluster-${cluster}`;

export async function show(page) {
  page.setTitle(T.connectTitle, [[T.clusters, "clusters"]]);
  const kinds = { clusters: managed("clusters"), secrets: management.find("secrets", "") };
  const answers = await Promise.all([
    review({ verb: "create", kind: kinds.clusters }),
    review({ verb: "create", kind: kinds.secrets, namespace: NAMESPACE }),
  ]);
  const missing = Object.keys(kinds).filter((_, index) => !answers[index].allowed);
  if (missing.length) {
    const reasons = answers.filter((each) => !each.allowed && each.reason).map((each) => h("p.muted", each.reason));
    return replace(page.main, empty(T.denied, T.deniedText(missing.map((each) => T.deniedParts[each])), reasons));
  }
  new ConnectPage(page, kinds).build();
}

// A kubeconfig by paste, drop or file. It is never kept anywhere else.
function kubeconfigField(onProblem) {
  const area = h("textarea.mono", { spellcheck: "false", autocomplete: "off", autocapitalize: "off" });
  const read = async (file) => {
    if (!file) return;
    if (file.size > MAX_BYTES) return onProblem(T.tooLarge);
    area.value = await file.text();
    onProblem("");
  };
  const file = h("input", { type: "file", hidden: true, onchange: () => read(file.files[0]) });
  const node = field(T.kubeconfig, area, T.kubeconfigHelp);
  node.append(h("div", button(T.file, { icon: "folder", onclick: () => file.click() }), file));
  node.addEventListener("dragover", (event) => {
    event.preventDefault();
    node.classList.add("is-dropping");
  });
  node.addEventListener("dragleave", () => node.classList.remove("is-dropping"));
  node.addEventListener("drop", (event) => {
    event.preventDefault();
    node.classList.remove("is-dropping");
    read(event.dataTransfer.files[0]);
  });
  return { node, area };
}

class ConnectPage {
  constructor(page, kinds) {
    Object.assign(this, { page, scope: page.scope, kinds, following: "" });
    const input = (properties) => h("input", { autocomplete: "off", spellcheck: "false", ...properties });
    this.name = input({
      pattern: "[a-z0-9]([a-z0-9.\\-]*[a-z0-9])?",
      maxlength: 63,
      required: true,
      value: page.query.get("name") ?? "",
      oninput: () => this.showCommands(),
    });
    this.display = input({ maxlength: 253 });
    this.displayField = field(T.displayName, this.display, T.displayNameHelp);
    this.config = kubeconfigField((problem) => this.fail(problem));
    this.problem = h("div", { role: "alert" });
    this.commands = h("div");
    this.submit = h("button.primary", { type: "submit" }, T.connect);
    this.checks = h("div");
    this.form = h("form.stack", {
      novalidate: true,
      onsubmit: (event) => {
        event.preventDefault();
        this.send();
      },
    });
  }

  build() {
    const { page, form } = this;
    replace(
      form,
      card(T.nameStep, field(T.name, this.name, T.nameHelp), this.displayField),
      card(
        T.accessStep,
        this.config.node,
        h("p.muted", T.flatten),
        codeBlock("kubectl config view --raw --flatten --minify"),
        this.commands,
      ),
      this.problem,
      h("div.row", this.submit, linkButton(href("clusters"), T.cancel, { kind: "quiet" })),
    );
    replace(page.main, h("div.stack.connect", form, this.checks));
    this.showCommands();
    guardDraft(this.scope, () => Boolean(this.config.area.value));
    if (page.query.get("name")) this.follow(this.name.value);
    else setTimeout(() => this.name.focus());
  }

  showCommands() {
    const name = this.name.validity.valid && this.name.value ? this.name.value : "NAME";
    const display = this.display.value.replace(/'/g, `'\\''`);
    const login = `fairlead login ${ROOT.href.replace(/\/$/, "")}`;
    const commands = `${login}\nfairlead cluster add ${name}${display ? ` --display-name '${display}'` : ""}`;
    const isOpen = this.commands.querySelector("details")?.open;
    const wait = button(T.waitFor, { onclick: () => (name === "NAME" ? this.fail(T.nameHelp) : this.follow(name)) });
    replace(
      this.commands,
      h("details", { open: isOpen }, h("summary", T.command), h("p.muted", T.commandHint), codeBlock(commands), wait),
    );
  }

  fail(problem) {
    replace(this.problem, problem && (typeof problem === "string" ? h("p.problem", problem) : errorBlock(problem)));
  }

  async send() {
    const name = this.name.value.trim();
    const text = this.config.area.value;
    if (!this.name.validity.valid || !name || !text.trim()) {
      this.fail(this.name.value && !this.name.validity.valid ? T.nameHelp : T.missing);
      return (this.name.validity.valid && name ? this.config.area : this.name).focus();
    }
    if (text.length > MAX_BYTES) return this.fail(T.tooLarge);
    this.fail("");
    this.submit.disabled = true;
    this.submit.textContent = T.connecting;
    try {
      await (this.following === name ? this.store(name, text) : this.create(name, text));
      this.config.area.value = "";
      this.form.hidden = true;
      setQuery({ name });
      this.follow(name);
    } catch (error) {
      if (!this.scope.ended) this.fail(error instanceof Known ? error.message : error);
    } finally {
      this.submit.disabled = false;
      this.submit.textContent = this.following ? T.replace : T.connect;
    }
  }

  async create(name, text) {
    const { clusters, secrets } = this.kinds;
    if (
      await getObject(clusters, "", name).then(
        () => true,
        (error) => {
          if ([403, 404].includes(error.code)) return false;
          throw error;
        },
      )
    )
      throw new Known(T.exists(name));
    const isNew = await this.store(name, text);
    const config = { secretName: secretName(name), secretNamespace: NAMESPACE, key: KEY };
    const spec = { config, ...(this.display.value.trim() ? { displayName: this.display.value.trim() } : {}) };
    try {
      await createObject(clusters, "", {
        apiVersion: clusters.apiVersion,
        kind: clusters.kind,
        metadata: { name },
        spec,
      });
    } catch (error) {
      if (isNew) await deleteObject(secrets, NAMESPACE, secretName(name)).catch(() => {});
      throw error;
    }
  }

  // Stores the kubeconfig. Only a Secret that was made for this cluster is changed. Returns whether it is new.
  async store(name, text) {
    const { secrets } = this.kinds;
    const metadata = { name: secretName(name), labels: { [LABEL]: name } };
    try {
      await createObject(secrets, NAMESPACE, {
        apiVersion: "v1",
        kind: "Secret",
        metadata,
        type: "Opaque",
        stringData: { [KEY]: text },
      });
      return true;
    } catch (error) {
      if (!(error instanceof ApiError && error.reason === "AlreadyExists")) throw error;
    }
    const found = await getObject(secrets, NAMESPACE, secretName(name));
    if (found.metadata.labels?.[LABEL] !== name) throw new Known(T.foreign(secretName(name)));
    await patchObject(secrets, NAMESPACE, secretName(name), { stringData: { [KEY]: text } });
    return false;
  }

  // The checks of the server, until the cluster is ready and after that.
  follow(name) {
    if (this.following === name) return;
    this.following = name;
    this.stream?.end();
    this.stream = this.scope.child();
    this.form.hidden = true;
    const body = h("div", { "aria-live": "polite" }, skeleton(3));
    replace(this.checks, card(T.checkStep, body));
    let said = "";
    watchObject(this.kinds.clusters, "", name).subscribe(this.stream, (list) => {
      if (list.state === "stopped") return replace(body, errorBlock(list.error));
      const [cluster] = list.objects;
      const [state, word] = cluster ? verdict(cluster) : ["working", T.notFound(name)];
      if (word !== said) announce((said = word));
      const another = button(T.another, { onclick: () => this.offerAnother(name) });
      replace(
        body,
        h("p", stateBadge({ state, word })),
        cluster?.status?.probes?.length > 0 && probeList(cluster),
        state === "failed" && h("p.muted", T.keepsTrying),
        h(
          "div.row",
          cluster &&
            linkButton(href(`clusters/${encodeURIComponent(name)}`), T.open, {
              kind: state === "ready" ? "primary" : "",
            }),
          state === "ready" && linkButton(href(`clusters/${encodeURIComponent(name)}/~browse`), T.browse, {}),
          cluster && state !== "ready" && another,
        ),
      );
    });
  }

  offerAnother(name) {
    this.name.value = name;
    this.name.readOnly = true;
    this.displayField.hidden = true;
    this.submit.textContent = T.replace;
    this.form.hidden = false;
    this.config.area.focus();
  }
}

class Known extends Error {}

function verdict(cluster) {
  const ready = condition(cluster, "Ready");
  if (ready?.status === "True") return ["ready", T.ready];
  return ready?.status === "False" ? ["failed", T.notReady] : ["working", T.waiting];
}
