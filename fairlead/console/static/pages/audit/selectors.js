// Field selectors of the audit log.

const READS = ["verb!=get", "verb!=list", "verb!=watch"];
// What the console and the frame of every client ask all the time.
export const QUIET = [
  "objectRef.resource!=selves",
  "objectRef.resource!=selfsubjectaccessreviewbatches",
  "objectRef.resource!=selfsubjectaccessreviews",
  "objectRef.resource!=leases",
];
export const CHANGES = [...READS, ...QUIET, "dryRun!=All"];
