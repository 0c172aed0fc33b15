// The command line of another machine asks to act as the user, who types the code that it shows. No address has the
// code: a link with one would let others get a login with the permissions of who follows it.

import { request } from "../core/api.js";
import { h, replace } from "../core/dom.js";
import { T } from "../texts/sign-in.js";
import { card, field } from "../widgets/common.js";
import { errorBlock } from "../widgets/errors.js";
import { consentCard } from "./consent.js";

export async function show(page) {
  page.setTitle(T.deviceTitle);
  const code = h("input.mono", {
    required: true,
    maxlength: 20,
    autocomplete: "off",
    autocapitalize: "characters",
    spellcheck: "false",
    placeholder: "BCDF-GHJK",
  });
  const problem = h("div", { role: "alert" });
  const result = h("div", { role: "status" });
  const send = (path, body) =>
    request(`auth/device/${path}`, {
      method: "POST",
      body: { userCode: code.value, ...body },
      signal: page.scope.signal,
    });
  const fail = (error) =>
    replace(
      problem,
      error.code === 404
        ? h("p.problem", T.unknownCode)
        : error.code === 429
          ? h("p.problem", T.tooOften(error.retryAfter))
          : errorBlock(error),
    );
  const decide = async (approve) => {
    const { approved } = await send("decision", { approve });
    replace(page.main, h("p.notice", { role: "status" }, approved ? T.allowed : T.denied));
  };
  const submit = async (event) => {
    event.preventDefault();
    replace(problem);
    replace(result);
    try {
      replace(result, consentCard(await send("request"), T.mine, decide));
    } catch (error) {
      if (!page.scope.ended) fail(error);
    }
  };
  code.addEventListener("input", () => replace(result));
  page.main.append(
    h(
      "div.stack",
      card(
        "",
        h(
          "form.stack",
          { onsubmit: submit },
          h("p", T.codeText),
          field(T.code, code),
          problem,
          h("div", h("button.primary", { type: "submit" }, T.next)),
        ),
      ),
      result,
    ),
  );
  setTimeout(() => code.focus());
}
