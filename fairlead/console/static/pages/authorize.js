// The command line of this machine asks to act as the user. The decision goes back to it, on a loopback address.

import { request } from "../core/api.js";
import { h, replace } from "../core/dom.js";
import { T } from "../texts/sign-in.js";
import { consentCard } from "./consent.js";

const LOOPBACK = /^http:\/\/(127\.0\.0\.1|\[::1\]):\d+\//;

export async function show(page) {
  page.setTitle(T.authorizeTitle);
  const { signal } = page.scope;
  const asked = await request(`auth/authorize${location.search}`, { signal });
  const decide = async (approve) => {
    const { redirect } = await request("auth/authorize", {
      method: "POST",
      body: { approve, request: Object.fromEntries(page.query) },
      signal,
    });
    if (!LOOPBACK.test(redirect)) throw new Error(T.badRedirect);
    replace(page.main, h("p", { role: "status" }, T.returning));
    location.assign(redirect);
  };
  replace(page.main, consentCard(asked, "", decide));
}
