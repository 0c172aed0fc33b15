// Runs the OpenID provider `oidc-provider` with TLS on loopback, for tests.
//
//   node oidc_provider.mjs FOLDER CERT KEY
//
// FOLDER is where it is installed. Each line on stdin is a command in JSON, and is answered by one line on stdout; the
// first line on stdout is the answer to the start. The process ends when stdin does.
import { generateKeyPairSync, randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer } from "node:https";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [folder, certFile, keyFile] = process.argv.slice(2);
const library = join(folder, "node_modules", "oidc-provider", "lib");
const { default: Provider } = await import(pathToFileURL(join(library, "index.js")));
const { createMemoryAdapter } = await import(pathToFileURL(join(library, "adapters", "memory_adapter.js")));

// Sessions and tokens outlive a provider that is replaced.
const adapter = createMemoryAdapter();
const accounts = new Map();
const lastSids = new Map();
const cookieKeys = [randomBytes(32).toString("hex")];
const settings = { clients: [], keys: [generateKey()], claimsInIdToken: false, rotateRefreshTokens: true, idTokenSeconds: 3600 };
const server = createServer({ cert: readFileSync(certFile), key: readFileSync(keyFile) });
let handle;
let port = 0;
let provider;

server.on("request", (request, response) => handle(request, response));

function generateKey() {
  return generateKeyPairSync("rsa", { modulusLength: 2048 }).privateKey.export({ format: "jwk" });
}

function listen() {
  return new Promise((resolve) => server.listen(port, "127.0.0.1", () => resolve(server.address().port)));
}

function findAccount(_context, sub) {
  if (!accounts.has(sub)) return undefined;
  return { accountId: sub, claims: () => ({ ...accounts.get(sub), sub }) };
}

function build() {
  provider = new Provider(`https://localhost:${port}`, {
    adapter,
    claims: { openid: ["sub"], profile: ["name", "preferred_username"], email: ["email", "email_verified"], groups: ["groups"] },
    clients: settings.clients,
    conformIdTokenClaims: !settings.claimsInIdToken,
    cookies: { keys: cookieKeys },
    features: { backchannelLogout: { enabled: true }, devInteractions: { enabled: true } },
    // Without its protection against loopback addresses, where the server under test listens.
    fetch: (url, { dispatcher, ...options }) => fetch(url, options),
    findAccount,
    jwks: { keys: settings.keys },
    rotateRefreshToken: settings.rotateRefreshTokens,
    scopes: ["openid", "offline_access"],
    ttl: { AccessToken: 3600, Grant: 86400, IdToken: settings.idTokenSeconds, Interaction: 600, RefreshToken: 86400, Session: 86400 },
  });
  provider.on("grant.success", ({ oidc: { entities } }) => {
    const { accountId, sid } = entities.AuthorizationCode ?? {};
    if (sid !== undefined) lastSids.set(accountId, sid);
  });
  for (const event of ["grant.error", "authorization.error", "server_error"]) {
    provider.on(event, (_context, error) => console.error(event, error));
  }
  handle = provider.callback();
}

const commands = {
  account({ sub, claims }) {
    if (claims === null) accounts.delete(sub);
    else accounts.set(sub, claims);
  },
  change({ settings: changes }) {
    Object.assign(settings, changes);
    build();
  },
  // As providers do it: the old key is still published for a while, unless `forget` is set.
  rotate({ forget }) {
    settings.keys = [generateKey(), ...(forget ? [] : settings.keys)];
    build();
  },
  async logout({ client, sub, sid }) {
    const found = await provider.Client.find(client);
    await found.backchannelLogout(sub, sid ?? lastSids.get(sub));
  },
  stop() {
    return new Promise((resolve) => {
      server.close(() => resolve());
      server.closeAllConnections();
    });
  },
  async start() {
    await listen();
  },
};

async function answer(line) {
  try {
    const { command, ...options } = JSON.parse(line);
    await commands[command](options);
    return {};
  } catch (error) {
    return { error: `${error.message} ${error.cause ?? ""}` };
  }
}

port = await listen();
build();
process.stdout.write(`${JSON.stringify({ issuer: `https://localhost:${port}` })}\n`);
for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(`${JSON.stringify(await answer(line))}\n`);
}
process.exit(0);
