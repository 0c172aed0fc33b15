// Starts the console: signs in, learns what the server serves, and shows the page of the URL.

import { startShell } from "./shell/shell.js";

startShell();
