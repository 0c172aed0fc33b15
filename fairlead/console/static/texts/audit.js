// Texts of the audit log.

export const T = {
  title: "Audit log", what: "Show", whats: { changes: "Changes", denied: "Denied requests", failed: "Failed requests", all: "All requests" }, user: "User", resource: "Kind", project: "Project", name: "Name", since: "Since", sinces: { "": "the beginning", "15m": "15 minutes", "1h": "1 hour", "24h": "a day", "168h": "a week" },
  own: "You see your own requests. Administrators and auditors see all.", time: "Time", who: "Who", did: "Did", object: "Object", result: "Result", older: "Older", none: "No request matches.", live: "New requests appear at the top.", notLive: "New requests do not appear at the moment.",
  verbs: { create: "created", update: "changed", patch: "changed", delete: "deleted", deletecollection: "deleted all", get: "read", list: "listed", watch: "watched", post: "sent" }, dryRun: (words) => `${words} (dry run)`,
  requests: { "/auth/password/login": "asked to sign in", "/auth/logout": "asked to sign out", "/auth/token": "asked for a token", "/auth/revoke": "asked to end a login", "/auth/device": "asked for a device code" }, allowed: "allowed", denied: "denied", failed: "failed",
  event: "Request", sentence: (who, verb, object) => `${who} ${verb} ${object}`, deniedSentence: (who, verb, object) => `${who} was not allowed to ${verb} ${object}`, wasDenied: "The request was denied", decision: "Decision", reason: "Why", refusedBy: "Refused by", accessText: "May I? shows each step of the decision for a request like this one.", ask: "Open in May I?", status: "Response", address: "From", agent: "Client", key: "Access key", actedAs: "Acting as", path: "Request", received: "Received", id: "Audit ID", annotations: "Notes", message: "Message", truncated: "The server stopped searching here.",
};
