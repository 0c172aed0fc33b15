// What the command line asks for, and the user's decision: shared by the pages /authorize and /device.

import { session } from "../core/api.js";
import { h, replace } from "../core/dom.js";
import { duration, timeElement } from "../core/time.js";
import { signOut } from "../shell/sign-in.js";
import { T } from "../texts/sign-in.js";
import { button, card, definition } from "../widgets/common.js";
import { errorBlock } from "../widgets/errors.js";

// `asked` is the server's description of the request; `decide(approve)` sends the decision.
export function consentCard(asked, question, decide) {
  const { client, machine, redirectHost, address, requestedAt, user, ttlSeconds, keyTTLSeconds } = asked;
  const problem = h("div");
  const decided = async (approve) => {
    for (const each of [allow, deny]) each.disabled = true;
    try {
      await decide(approve);
    } catch (error) {
      replace(problem, errorBlock(error));
      for (const each of [allow, deny]) each.disabled = false;
    }
  };
  const allow = button(T.allow, { kind: "primary", onclick: () => decided(true) });
  const deny = button(T.deny, { onclick: () => decided(false) });
  return card(
    "",
    h(
      "div.stack.consent",
      h("p", h("strong", T.asks(client?.name ?? client?.id ?? "", machine))),
      definition([
        [T.program, client?.name],
        [T.machine, machine],
        [T.address, address],
        [T.asked, requestedAt && timeElement(requestedAt)],
        [T.returnsTo, redirectHost && h("code", redirectHost)],
        [T.user, h("span", h("strong", user), session.user.displayName !== user && ` (${session.user.displayName})`)],
        [T.lasts, ttlSeconds ? T.longest(duration(ttlSeconds)) : T.forever],
      ]),
      h("ul", h("li", T.can), h("li", T.keys(duration(keyTTLSeconds))), h("li", T.ends)),
      question && h("p", h("strong", question)),
      problem,
      h("div.row", allow, deny, button(T.another, { kind: "quiet", onclick: () => signOut({ to: location.href }) })),
    ),
  );
}
