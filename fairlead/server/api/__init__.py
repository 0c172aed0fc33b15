"""The Kubernetes API: routing, verbs, representations and errors. Generic over kinds.

routing.py        path and method to a request target; the dispatcher at the end of the pipeline
verbs.py          get, list, watch, create, update, patch, delete and deletecollection, on top of the registry
actions.py        virtual kinds (reviews) and subresources that are handled instead of stored
aggregation.py    the API as an APIService of another kube-apiserver
query_options.py  query parameters: list, watch, write and delete options
content.py        content negotiation, and request bodies in JSON, YAML and protobuf
protobuf.py       decodes Kubernetes protobuf bodies
patch.py          patch bodies by media type
presentation.py   objects and lists as pretty JSON, YAML, Table or PartialObjectMetadata
watch.py          watch streams
errors.py         errors as `Status` objects
"""
