"""The audit log: `audit.k8s.io/v1` events for every request, with quotas, redaction and rotated files. Built by `app`.

stage.py            the two pipeline stages, and which events a request produces
policy.py           the audit policy, and the parser for Kubernetes policy files
events.py           events without request and response bodies, and a fast path to their JSON lines
body_capture.py     events that need a request or response body; rendered in the writer thread
redaction.py        removes credentials from objects, URIs and texts; which requests involve credentials
intake.py           selects the log of a request, or counts it if it is over its quota; summary events
log_writer.py       the bounded queue and the thread that writes
log_file.py         the file, its rotation, and the retention of rotated files
log_reader.py       pages, single events and watches of the log: log_query.py (what is asked for), log_search.py
                    (from the newest line backwards), log_segments.py (the files)
agent_reports.py    events that cluster agents report, rebuilt from known fields; and their quota
log.py              `AuditLog`: all of it for the rest of the server, with its metrics
"""
