// The page of a team: its members, added and removed by name. A change is rejected if the members are not those that
// were shown, so that two people do not undo each other's. Changes of the status do not matter.

import { review } from "../../core/access.js";
import { h, replace } from "../../core/dom.js";
import { management, patchObject } from "../../core/kinds.js";
import { link } from "../../core/router.js";
import { announce } from "../../shell/dialogs.js";
import { T } from "../../texts/access.js";
import { button, card } from "../../widgets/common.js";
import { errorBlock } from "../../widgets/errors.js";
import { suggestions } from "../../widgets/form/suggest.js";

export function summary(context) {
  const { kind, object } = context;
  const list = h("ul.plain");
  const problem = h("div");
  const form = h("div");
  let mayEdit = false;
  let shown = "";
  const save = async (users) => {
    replace(problem);
    try {
      const path = "/spec/users";
      const shownUsers = context.object.spec?.users;
      const changes = [shownUsers && { op: "test", path, value: shownUsers }, { op: "add", path, value: users }].filter(
        Boolean,
      );
      context.update(
        await patchObject(kind, "", object.metadata.name, changes, { type: "application/json-patch+json" }),
      );
      return true;
    } catch (error) {
      replace(problem, errorBlock(error));
      return false;
    }
  };
  const update = () => {
    const { spec = {}, status = {} } = context.object;
    const users = spec.users ?? [];
    const others = spec.groups?.length ? (status.members ?? []).filter((each) => !users.includes(each)) : [];
    // A row that is replaced loses a click that has begun.
    const key = JSON.stringify([users, others, spec.groups, mayEdit]);
    if (key === shown) return;
    shown = key;
    const row = (name, ...extra) => h("li.row", link(`users/${encodeURIComponent(name)}`, name), extra);
    replace(
      list,
      users.map((name) =>
        row(
          name,
          mayEdit &&
            button(T.remove, {
              kind: "quiet",
              "aria-label": T.removeOf(name),
              onclick: () => save(users.filter((each) => each !== name)),
            }),
        ),
      ),
      others.map((name) => row(name, h("span.muted", T.fromGroups))),
      !users.length && !others.length && h("li.muted", T.noMembers),
      spec.groups?.length > 0 && h("li.muted", `${T.ssoGroups}: ${spec.groups.join(", ")}`),
    );
  };
  context.onChange(update);
  update();
  review({ verb: "patch", kind, name: object.metadata.name }).then(({ allowed, reason }) => {
    mayEdit = allowed;
    update();
    replace(form, allowed ? addForm(context, save) : h("p.muted", `${T.mayNotEdit} ${reason}`));
  });
  return card(T.members, list, problem, form);
}

function addForm(context, save) {
  const name = h("input", { "aria-label": T.user, placeholder: T.user, required: true, autocomplete: "off" });
  const add = async (event) => {
    event.preventDefault();
    const added = name.value.trim();
    const users = context.object.spec?.users ?? [];
    if (users.includes(added) || (await save([...users, added]))) {
      announce(added);
      name.value = "";
      name.focus();
    }
  };
  return h(
    "form.row",
    { onsubmit: add },
    h("h3", T.addMember),
    name,
    suggestions({ server: management }, () => "")({ path: "user" }, name),
    h("button.primary", { type: "submit" }, T.add),
  );
}
