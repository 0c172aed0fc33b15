// The frame around every page: top bar, navigation, page title, and what happens between two pages.

import { actAs, pause, session } from "../core/api.js";
import { BUILD } from "../core/base.js";
import { h, replace, Scope } from "../core/dom.js";
import { management } from "../core/kinds.js";
import { keepClicks } from "../core/press.js";
import { current, href, link, setLeaveQuestion, setQuery, startRouter } from "../core/router.js";
import { matchPage, preloadPage } from "../pages/routes.js";
import { T } from "../texts/shell.js";
import { button, icon, skeleton } from "../widgets/common.js";
import { errorBlock } from "../widgets/errors.js";
import { warningBlock } from "../widgets/warnings.js";
import { accountMenu } from "./account-menu.js";
import { connectionState } from "./connection.js";
import { announce, liveRegion, toast } from "./dialogs.js";
import { passwordOffer } from "./first-password.js";
import { navigation } from "./navigation.js";
import { installShortcuts } from "./shortcuts.js";
import { loadSession, NO_PROBLEM, signOnProblem } from "./sign-in.js";

const SKELETON_AFTER = 150;

let pageScope = new Scope();
let main;
let view;
let heading;
let crumbs;
let menu;

export async function startShell() {
  keepClicks();
  document.querySelector(".late")?.remove();
  preloadPage(current().path);
  setLeaveQuestion(() => window.confirm(T.unsaved));
  try {
    await Promise.all([loadSession({ asks: true }), management.load()]);
  } catch (error) {
    fillBody(
      h(
        "main.lonely",
        errorBlock(error, { retry: () => location.reload() }),
        session.actAs && button(T.stopActing, { onclick: () => actAs("") }),
      ),
    );
    return;
  }
  session.warn = (warnings) => toast(warnings.join("\n"), { content: warningBlock(warnings), stays: true });
  buildFrame();
  installShortcuts(openPalette);
  startRouter(showPage);
  const problem = signOnProblem(); // of a user who was signed in already
  if (problem) {
    toast(problem);
    setQuery(NO_PROBLEM);
  }
}

function buildFrame() {
  heading = h("h1");
  crumbs = h("nav.crumbs", { "aria-label": T.breadcrumbs });
  view = h("div");
  main = h("main", { id: "main", tabindex: "-1" }, h("div.title", crumbs, heading), view);
  menu = h(
    "button.quiet.menu-button",
    {
      type: "button",
      "aria-label": T.menu,
      "aria-expanded": "false",
      "aria-controls": "navigation",
      onclick: toggleMenu,
    },
    icon("menu"),
  );
  const search = h(
    "button.search-button",
    { type: "button", "aria-keyshortcuts": "Control+K", onclick: openPalette },
    icon("search"),
    h("span", T.search),
    h("kbd", "Ctrl K"),
  );
  const bar = h(
    "header.top",
    menu,
    h("a.brand", { href: href(""), "aria-label": T.home }, brand(), h("span", "Fairlead")),
    search,
    h("span.spring"),
    connectionState(),
    accountMenu(),
  );
  const { impersonator, displayName } = session.user;
  const acting =
    impersonator &&
    h(
      "div.acting",
      { role: "status" },
      T.actsAs(displayName, impersonator),
      session.actAs && button(T.stopActing, { onclick: () => actAs("") }),
    );
  const skip = h(
    "a.skip",
    {
      href: "#main",
      onclick: (event) => {
        event.preventDefault();
        main.focus();
      },
    },
    T.skip,
  );
  const frame = h("div.frame", navigation(), h("div.page", passwordOffer(), main));
  fillBody(skip, acting, bar, frame);
  watchBuild();
}

// In place of the skeleton. The stylesheets are links of the body, and stay: elsewhere they would be loaded again.
/** @param {any[]} children */
function fillBody(...children) {
  for (const node of [...document.body.childNodes]) if (!(node instanceof HTMLLinkElement)) node.remove();
  document.body.prepend(...children.filter(Boolean), liveRegion());
}

const brand = () => h("img", { src: new URL("../icon.svg", import.meta.url).pathname, alt: "", width: 24, height: 24 });

// What is typed while the palette is loaded is not lost.
async function openPalette() {
  let typed = "";
  const scope = new Scope();
  scope.listen(
    document,
    "keydown",
    (event) => {
      if (event.key.length !== 1 || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      event.stopPropagation();
      typed += event.key;
    },
    { capture: true },
  );
  try {
    const { showPalette } = await import("./palette.js");
    showPalette(typed);
  } finally {
    scope.end();
  }
}

function toggleMenu() {
  const open = document.body.classList.toggle("menu-open");
  menu.setAttribute("aria-expanded", String(open));
  if (open) /** @type {HTMLElement} */ (document.querySelector("#navigation a"))?.focus();
}

async function showPage() {
  pageScope.end();
  const scope = (pageScope = new Scope());
  document.body.classList.remove("menu-open");
  menu.setAttribute("aria-expanded", "false");
  const { path, query } = current();
  const timer = setTimeout(() => !scope.ended && replace(view, skeleton()), SKELETON_AFTER);
  const content = h("div.content");
  const page = {
    scope,
    main: content,
    query,
    hasTitle: false,
    setTitle: (...title) => {
      if (!scope.ended) {
        page.hasTitle = true;
        setTitle(...title);
      }
    },
  };
  const found = matchPage(path);
  document.body.dataset.section = found.section ?? "";
  markCurrent();
  try {
    const module = await loadModule(found.load);
    if (scope.ended) return;
    await Promise.race([module.show(page, found.parameters ?? {}), filled(content, scope)]);
  } catch (error) {
    if (scope.ended) return;
    if (isMissingModule(error)) return offerReload();
    replace(content, errorBlock(error, { retry: showPage }));
    if (!page.hasTitle) setTitle(T.error);
  } finally {
    clearTimeout(timer);
  }
  if (scope.ended) return;
  view.replaceChildren(content);
  main.scrollTop = 0;
  if (!document.activeElement || document.activeElement === document.body || !document.contains(document.activeElement))
    main.focus({ preventScroll: true });
  announce(document.title);
}

// A page is shown as soon as it has content: some keep loading parts of themselves.
/**
 * @param {HTMLElement} node
 * @param {Scope} scope
 * @returns {Promise<void>}
 */
function filled(node, scope) {
  return new Promise((resolve) => {
    const observer = new MutationObserver(() => {
      observer.disconnect();
      resolve();
    });
    observer.observe(node, { childList: true });
    scope.add(() => {
      observer.disconnect();
      resolve();
    });
  });
}

function setTitle(title, trail = []) {
  heading.textContent = title;
  document.title = `${title} · Fairlead`;
  replace(
    crumbs,
    trail.map(([label, path], index) => [index > 0 && h("span", { "aria-hidden": "true" }, "/"), link(path, label)]),
  );
}

function markCurrent() {
  const here = location.pathname;
  let best = null;
  /** @type {NodeListOf<HTMLAnchorElement>} */
  const anchors = document.querySelectorAll("#navigation a");
  for (const anchor of anchors) {
    anchor.removeAttribute("aria-current");
    const isPrefix = here === anchor.pathname || here.startsWith(`${anchor.pathname.replace(/\/$/, "")}/`);
    const isHome = anchor.pathname === href("");
    if ((isHome ? here === anchor.pathname : isPrefix) && (!best || anchor.pathname.length > best.pathname.length))
      best = anchor;
  }
  best?.setAttribute("aria-current", "page");
}

const isMissingModule = (error) =>
  error instanceof TypeError && /dynamically imported module|module script/i.test(error.message);

// A connection that broke off at this moment is no upgrade: the second attempt decides.
const loadModule = (load) =>
  load().catch(async (error) => {
    if (!isMissingModule(error)) throw error;
    await pause(0.5);
    return load();
  });

// After an upgrade of the server, modules of this build are gone.
function offerReload() {
  replace(
    view,
    h("section.notice", h("p", T.newVersion), button(T.reload, { kind: "primary", onclick: () => location.reload() })),
  );
}

function watchBuild() {
  const check = async () => {
    const response = await fetch(href(""), { cache: "no-cache" }).catch(() => null);
    const text = response?.ok ? await response.text() : "";
    const build = text.match(/assets\/([0-9a-f]+)\//)?.[1];
    if (build && build !== BUILD && !document.querySelector(".new-version")) {
      document
        .querySelector("header.top")
        .append(h("button.new-version", { type: "button", onclick: () => location.reload() }, T.newVersionShort));
    }
  };
  setInterval(() => !document.hidden && session.user && check(), 300_000);
}
