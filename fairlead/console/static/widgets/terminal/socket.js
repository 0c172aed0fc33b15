// Connects a terminal with a command, over a WebSocket with the messages of `pods/exec`: of pods through the gateways,
// and of workspaces. It says why a session ended: a session cannot be resumed, only started anew.

import { ApiError, request, session } from "../../core/api.js";
import { T } from "../../texts/terminal.js";

const EXEC_PROTOCOL = "v5.channel.k8s.io";
const STDOUT = 1;
const STDERR = 2;
const STATUS = 3;
const RESIZE = 4;
const MAX_INPUT = 16 * 1024;
const POLICY_VIOLATION = 1008;

// `url` is a path on this server, with its query. Ends with the scope of the terminal.
export function attachSocket(terminal, url, { protocol = EXEC_PROTOCOL, onEnd = () => {} } = {}) {
  const { scope } = terminal;
  const encoder = new TextEncoder();
  let socket = null;
  terminal.onInput = (text) => {
    const bytes = encoder.encode(text);
    for (let start = 0; start < bytes.length; start += MAX_INPUT)
      send(socket, 0, bytes.subarray(start, start + MAX_INPUT));
  };
  terminal.onResize = (columns, rows) =>
    send(socket, RESIZE, encoder.encode(JSON.stringify({ Width: columns, Height: rows })));

  if (session.user?.impersonator) return terminal.showStatus(T.noImpersonation); // a WebSocket cannot carry its header

  function connect() {
    const address = new URL(url, location.href);
    address.protocol = address.protocol.replace("http", "ws");
    const opened = (socket = new WebSocket(address, protocol));
    let status = null;
    let wasOpen = false;
    socket.binaryType = "arraybuffer";
    terminal.showStatus(T.connecting);
    socket.onopen = () => {
      wasOpen = true;
      terminal.showStatus(T.connected);
      terminal.onResize(terminal.screen.columns, terminal.screen.rows);
    };
    socket.onmessage = ({ data }) => {
      const bytes = new Uint8Array(data);
      const content = bytes.subarray(1);
      if (bytes[0] === STDOUT) terminal.write(content);
      else if (bytes[0] === STDERR) terminal.write(new TextDecoder().decode(content).replace(/\r?\n/g, "\r\n"));
      else if (bytes[0] === STATUS) status = readStatus(content);
    };
    socket.onclose = async ({ code, reason }) => {
      if (scope.ended || opened !== socket) return;
      const why = status || wasOpen ? describeEnd(status, code, reason) : await findRefusal(url, scope.signal);
      terminal.showStatus(why, () => {
        terminal.restart();
        connect();
        terminal.focus();
      });
      onEnd(why);
    };
  }

  connect();
  scope.add(() => socket.close());
}

function send(socket, channel, content) {
  if (socket?.readyState !== WebSocket.OPEN) return;
  const message = new Uint8Array(content.length + 1);
  message[0] = channel;
  message.set(content, 1);
  socket.send(message);
}

function readStatus(content) {
  try {
    return JSON.parse(new TextDecoder().decode(content));
  } catch {
    return null;
  }
}

function describeEnd(status, code, reason) {
  if (code === POLICY_VIOLATION) return T.revoked;
  if (!status) return reason ? T.failed(reason) : T.lost;
  if (status.status === "Success") return T.exited(0);
  const cause = status.details?.causes?.find((each) => each.reason === "ExitCode");
  return cause ? T.exited(Number(cause.message)) : T.failed(status.message ?? status.reason ?? "");
}

// Browsers hide the response to an upgrade that failed, so the same request is sent without one. If only the missing
// upgrade is wrong with it, the connection itself failed.
async function findRefusal(url, signal) {
  try {
    await request(url, { signal, as: "text" });
  } catch (error) {
    if (error instanceof ApiError && error.code !== 400) return T.failed(error.message);
  }
  return T.refused;
}
