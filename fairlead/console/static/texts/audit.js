// Texts of the audit log.

export const T = {
  title: "Audit log", what: "Show", whats: { changes: "Changes", denied: "Denied requests", failed: "Failed requests", all: "All requests" }, user: "User", resource: "Kind", project: "Project", name: "Name", since: "Since", sinces: { "": "the beginning", "15m": "15 minutes", "1h": "1 hour", "24h": "a day", "168h": "a week" },
  own: "You see your own requests. Administrators and auditors see all.", time: "Time", who: "Who", did: "Did", object: "Object", result: "Result", older: "Older", none: "No request matches.", end: "This is the beginning of the log.", live: "New requests appear at the top.", notLive: "New requests do not appear at the moment.",
  verbs: { create: "created", update: "changed", patch: "changed", delete: "deleted", deletecollection: "deleted all", get: "read", list: "listed", watch: "watched", post: "sent" }, allowed: "allowed", denied: "denied", failed: "failed",
  event: "Request", sentence: (who, verb, object) => `${who} ${verb} ${object}`, wasDenied: "The request was denied", wasAllowed: "The request was allowed", decision: "Decision", reason: "Why", access: "Could it be allowed?", accessText: "May I? shows each step of the decision for a request like this one.", ask: "Open in May I?", status: "Response", address: "From", agent: "Client", key: "Access key", actedAs: "Acting as", path: "Request", received: "Received", duration: "Took", id: "Audit ID", annotations: "Notes", message: "Message", showObject: "Show the object", truncated: "The server stopped searching here.",
};
