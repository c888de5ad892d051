"""What the schemas of the document cannot say about a valid request: names that belong to the data, and the query language.

Only requests that are meant to be valid are changed; those that are meant to be invalid go out as they were made.
"""

import schemathesis
from schemathesis.generation import GenerationMode

# A bech32 address with a right checksum, which no pattern can ask for.
ADDRESS = "celestia1qurswpc8qurswpc8qurswpc8qurswpc8zek26v"
# The key of the test must stay valid.
RESERVED_KEY_NAME = "schemathesis"


@schemathesis.hook
def before_call(context, case, kwargs):
    operation = case.operation.definition.raw["operationId"]
    body = case.body if isinstance(case.body, dict) else {}
    if operation in ("createKey", "regenerateKey") and body.get("name") == RESERVED_KEY_NAME:
        body["name"] = "another"
    for parameters in (case.query, body):
        # A page of changes would be waited for.
        if isinstance(parameters, dict) and str(parameters.get("wait")).isdigit() and "hanges" in operation:
            parameters["wait"] = 0
    if case.meta is None or case.meta.generation.mode != GenerationMode.POSITIVE:
        return
    if "cursor" in (case.query or {}):
        # A cursor is what an earlier page answered.
        del case.query["cursor"]
    for name in ("price_config", "read_price_config"):
        # What is counted has an amount, of at most 6 decimals, and shares are at most 1 together.
        if body.get(name):
            body[name] = {"pricing_model": "per_access", "price_per_access_tia": 0.25}
    sanitize = sanitizers.get(operation)
    if sanitize:
        sanitize(case, body)


def known_parameters(*names):
    """Names of fields, variables and parameters are data."""

    def sanitize(case, _body):
        declared = {"limit", "offset", "count", "select"}
        case.query = {name: value for name, value in (case.query or {}).items() if name in declared}
        case.query.update({name: 5 for name in names})

    return sanitize


def storable(value):
    """JSON that a document can hold: no `__proto__`, no number beyond 10^±308."""
    if isinstance(value, dict):
        return {key: storable(member) for key, member in value.items() if key != "__proto__"}
    if isinstance(value, list):
        return [storable(element) for element in value]
    if isinstance(value, float) and value != 0 and not 1e-307 < abs(value) < 1e308:
        return 0.5
    return value


def storable_data(_case, body):
    data = body["data"]
    documents = [storable(one) for one in (data if isinstance(data, list) else [data])]
    for document in documents:
        # `id` and `deleted` are members of their own.
        document.pop("id", None)
        document.pop("deleted", None)
    body["data"] = documents


def one_kind_of_index(_case, body):
    """A composite index has `fields`, any other `field_name`."""
    if body["index_type"] == "composite":
        body.pop("field_name", None)
        body["fields"] = ["stars", "text"]
    else:
        body.pop("fields", None)
        body["field_name"] = body.get("field_name") or "stars"


def valid_view(_case, body):
    """Every source is the base or joined: here one, without joins."""
    body["source_collections"] = body["source_collections"][:1]
    query = body["query"]
    query.update(VALID_QUERY)
    query.pop("base", None)
    query.pop("join", None)
    query.pop("sort_by", None)
    if "aggregate" in query:
        query["aggregate"] = {"notes": {"$count": "*"}}
        query.pop("select")
    body["variables"] = {}


def valid_query(_case, body):
    body["base_query"].update(VALID_QUERY)
    for name in ("example_request", "example_response"):
        if name in body:
            body[name] = storable(body[name])
    for at, parameter in enumerate(body.get("parameters") or []):
        # Names are unique, and a default is one that the operator of the path takes.
        parameter.update(name=f"p{at}", field_path="stars", default=5)


def valid_list(_case, body):
    body.update({name: value for name, value in VALID_QUERY.items() if name in body})
    for name in ("cursor", "sort", "sortBy", "sortDirection"):
        body.pop(name, None)


def valid_address(case, _body):
    case.path_parameters["user_address"] = ADDRESS


def valid_destination(_case, body):
    for name in ("payout_destination", "payout_address"):
        if body and body.get(name) is not None:
            body[name] = ADDRESS


def offered_networks(_case, body):
    """Which networks can be chosen is a setting of the operator: here there are none."""
    body["payment_networks"] = None


def valid_schema(_case, body):
    """Names of fields are paths, a default fits its rule, a pattern is a regular expression."""
    definition = body.get("schema_definition") or {}
    rules = definition.get("fields") or {}
    for rule in rules.values():
        rule.pop("default", None)
        rule.pop("validation", None)
        if rule.get("type") != "date":
            # Only a date has a format.
            rule.pop("format", None)
    if rules:
        definition["fields"] = {f"field{at}": rule for at, rule in enumerate(rules.values())}


def printable_name(_case, body):
    """Generators do not know which characters are printable."""
    name = "".join(letter for letter in body["name"] if letter.isprintable())
    body["name"] = "name" if name in ("", ".", "..") else name


def valid_key(_case, body):
    """A key of a new name has permissions, and no name is a segment of a path that clients resolve."""
    body.setdefault("permissions", ["Read"])
    if body.get("name") in (".", ".."):
        body["name"] = "dots"


def valid_batch(_case, body):
    """What is created, changed or deleted has an id, or makes one."""
    for at, operation in enumerate(body["operations"]):
        data = storable(operation.get("data") or {})
        data.pop("deleted", None)
        operation["data"] = {**data, "id": f"made{at}"}
        if "conditions" in operation:
            operation["conditions"] = {"id": {"isNotNull": True}}


def valid_index(case, body):
    printable_name(case, body)
    one_kind_of_index(case, body)


def valid_feed(case, _body):
    """Positions and tokens are what earlier answers had, and a filter is one in JSON."""
    kept = {"limit", "documents", "mode", "wait"}
    case.query = {name: value for name, value in (case.query or {}).items() if name in kept}
    if case.headers:
        case.headers.pop("Last-Event-ID", None)


def valid_export(case, _body):
    """Heights and versions are what there is, a filter is one in JSON, and columns are for CSV."""
    kept = {"format", "after", "history", "deleted"}
    case.query = {name: value for name, value in (case.query or {}).items() if name in kept}


def valid_file(case, _body):
    """Columns are for CSV, and a file is one of documents that can be stored."""
    kept = {"mode", "on_error", "dry_run"}
    case.query = {name: value for name, value in (case.query or {}).items() if name in kept}
    if case.headers:
        case.headers.pop("Content-Encoding", None)
    case.body = b'{"id":"first"}\n'


def valid_part(case, _body):
    """A part begins where its import is, which generators cannot know, and is one of documents that can be stored."""
    case.headers.update({"Upload-Offset": "0", "Upload-Complete": "?1"})
    case.headers.pop("Content-Encoding", None)
    case.body = b'{"id":"first"}\n'


def valid_import(_case, body):
    """Columns are for CSV, and each has a name of its own."""
    for name in ("columns", "types", "empty", "separator"):
        body.pop(name, None)


def valid_subscriptions(case, body):
    body["subscriptions"] = [{"as": "all", "collection": "notes"}]
    body.pop("since", None)
    body.pop("select", None)
    if case.headers:
        case.headers.pop("Last-Event-ID", None)


# The language of filters and selections is too rich for a schema.
# An index that was made before may declare any type of a field.
VALID_QUERY = {"find": {"stars": {"isNotNull": True}}, "select": ["stars", "text"]}

sanitizers = {
    "readCollection": known_parameters("stars"),
    "readView": known_parameters("stars"),
    "runQuery": known_parameters("stars"),
    "readChanges": valid_feed,
    "readSubscribedChanges": valid_subscriptions,
    "exportCollection": valid_export,
    "importFile": valid_file,
    "sendImport": valid_part,
    "createImport": valid_import,
    "createFeedToken": valid_subscriptions,
    "store": storable_data,
    "batch": valid_batch,
    "validateDocuments": storable_data,
    "list": valid_list,
    "createIndex": valid_index,
    "createView": valid_view,
    "createQuery": valid_query,
    "createKey": valid_key,
    "regenerateKey": valid_key,
    "createCollection": valid_schema,
    "updateApplication": offered_networks,
    "updateCollection": valid_schema,
    "listTransactionsOfUser": valid_address,
    "updatePayoutSettings": valid_destination,
    "triggerPayout": valid_destination,
}
