// Texts of terminals and logs.

const number = (value) => value.toLocaleString();

export const T = {
  terminal: "Terminal",
  input: "Input of the terminal. Ctrl+Shift+F6 leaves it.",
  left: "Left the terminal. Tab goes on.",
  leaveHint: "Ctrl+Shift+F6 leaves the terminal",
  readOutput: "Read output aloud",
  allowCopy: "Programs may copy to the clipboard",
  connecting: "Connecting…",
  connected: "Connected",
  reconnect: "Reconnect (new session)",
  exited: (code) => (code === 0 ? "The session has ended." : `The session has ended with exit code ${code}.`),
  failed: (message) => `The session has ended: ${message}`,
  revoked: "The session was ended: you do not have access any more.",
  lost: "The connection was lost. The session cannot be resumed.",
  refused: "The connection could not be opened.",
  noImpersonation: "There is no terminal while you act as another user.",
  log: "Log",
  filter: "Filter lines",
  matches: (found, all) => `${number(found)} of ${number(all)} lines`,
  lines: (count) => `${number(count)} lines`,
  dropped: (count) => `${number(count)} older lines were dropped`,
  follow: "Follow",
  timestamps: "Timestamps",
  wrap: "Wrap lines",
  previous: "Previous container",
  download: "Download",
  resuming: "Connection lost, resuming…",
  ended: "End of the log",
};
