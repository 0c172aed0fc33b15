// Where the console is: modules are at ROOT/console/assets/BUILD/core/base.js, whatever path a proxy adds in front.

const ASSETS = new URL("../", import.meta.url);
export const BUILD = ASSETS.pathname.split("/").at(-2);
export const ROOT = new URL("../../../", ASSETS);
export const CONSOLE = new URL("console/", ROOT);
export const API = new URL("kubernetes/management", ROOT).pathname;
export const GROUP = "management.service.sh";
export const FIELD_MANAGER = "fairlead-console";

/** @param {string} path */
export const consolePath = (path) => CONSOLE.pathname + path.replace(/^\//, "");
