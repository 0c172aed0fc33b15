// Texts of workspaces and runners.

const TASKS = { up: "Start", stop: "Stop", delete: "Deletion" };
const RESULTS = { Running: "under way", Succeeded: "succeeded", Failed: "failed" };

export const T = {
  now: "What it does", facts: "Facts", open: "Open", log: "Log", terminal: "Terminal", ports: "Ports",
  deleting: "It is being deleted.", unscheduled: "It waits until a runner is chosen for it.", waitsForRunner: (why) => `It waits for a runner: ${why}.`, waitsForTemplate: (why) => `It waits for its template: ${why}.`,
  waitsForReport: (runner) => `It waits for the runner ${runner}, which has not reported on it yet.`, silent: (why) => `Its runner does not respond${why && `: ${why}`}. What runs goes on running.`,
  busy: { UpRunning: (step) => `It is starting: ${step}.`, StopRunning: (step) => `It is stopping: ${step}.`, DeleteRunning: (step) => `It is being removed: ${step}.` }, task: (step) => `A task is under way: ${step}.`,
  seeLog: "See the log", failed: (why) => `It has failed: ${why}.`, asleep: "It sleeps. Its files are kept.", stopped: "It is stopped. Its files are kept.", notStarted: "It has not been started yet.", running: "It runs.", recovery: (why) => `It runs, but ${why}.`, activity: { Active: "It runs and is in use.", Idle: "It runs and is not in use." },
  upFailed: (why) => `It runs, but its last task has failed: ${why}.`, templateChanged: "The template has changed. The next start creates a new container; the work folder stays.",
  source: "Source", template: "Template", runner: "Runner", owner: "Owner", parameters: "Parameters", memory: "Memory", disk: "Disk", since: "Runs since", active: "Last activity", sleeps: "Falls asleep", asleepSince: "Asleep since", held: "Held awake until", never: "never", sleepAfter: (time) => `${time} after the last activity`, noRunner: "none yet", container: "Container",
  lastTask: (type, status) => `${TASKS[type] ?? type}: ${RESULTS[status] ?? status}`, unfinished: "not finished", showSteps: "Show the steps", noTasks: "No task yet.", notAllowed: "You may see this workspace, but not use it. Steps and logs are for its users.", seconds: (value) => `${value.toFixed(value < 10 ? 1 : 0)} s`,
  ssh: "A shell, from your machine:", sshConfig: "For ssh and editors, once:", host: "Then its host is:", vscode: "Open in VS Code", openHint: "VS Code needs its extension Remote - SSH.", notRunning: "It can be opened when it runs.",
  start: "Start", stop: "Stop", recreate: "Recreate…", reset: "Reset…", hold: "Keep awake for 2 h", release: "End keeping awake",
  askRecreate: (name) => `Recreate the container of ${name}?`, recreateText: "Its processes end, and a new container is created from devcontainer.json and the template. The work folder stays; everything else in the container is lost.", recreateNow: "Recreate",
  askReset: (name) => `Reset ${name}?`, resetText: "The container and the work folder are deleted, with all changes that were not pushed. Both are created anew from the source.", resetNow: "Delete and start again",
  whichTask: "Task", newest: "the newest", openTerminal: "Open a terminal", wakes: "A workspace that sleeps wakes up for it.",
  port: "Port", process: "Process", address: "Address", forward: "To reach it from your machine", noPorts: "No program in the workspace listens on a port.", refresh: "Refresh",
  inBrowser: "In the browser", openPort: "Open", openPortTitle: (port, name) => `Port ${port} of ${name}`, opening: "Opening…", waking: "It sleeps. Waking it up…", badPortAddress: "The server has sent an address that is not https.",
  online: "Connected since", offline: "Not connected since", neverReported: "It was never started.", heartbeat: "Last heartbeat", draining: "New workspaces", drainingText: "are not scheduled here", endpoint: "Address", startIt: "Start it", startHint: "On the machine that runs the workspaces, where you are logged in. The first command says what is missing there.",
};
