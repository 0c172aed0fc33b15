"""Documents about the API and the server: discovery, OpenAPI, version, health.

documents.py            all static documents by path
document.py             a static document with its variants, and the response to a request for it
resources.py            discovery: groups, versions and resources, as single and aggregated documents
openapi_v3.py           OpenAPI v3, one document per group and version
openapi_meta.py         the schemas that all of these share: ObjectMeta, Status, DeleteOptions
openapi_v2.py           OpenAPI v2, converted from v3, as JSON and as protobuf
health.py               /healthz, /livez and /readyz
"""
