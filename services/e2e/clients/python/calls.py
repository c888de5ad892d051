"""Run by python.test.ts beside `granary_client`, which openapi-python-client makes of the OpenAPI document."""

import datetime
import io
import sys
import time

from granary_client import AuthenticatedClient
from granary_client.api.blobs import delete_blob, read_blob, upload_blob
from granary_client.api.collections import delete_collection, get_collection_stats, list_collections, update_collection
from granary_client.api.documents import list_, read_collection, store
from granary_client.api.indexes import create_index, get_index
from granary_client.api.keys import regenerate_key, revoke_key
from granary_client.api.predefined_queries import create_query, run_query
from granary_client.api.skills import get_skills, put_skills
from granary_client.api.tasks import get_task
from granary_client.api.views import create_view, read_view
from granary_client.api.wallet import get_wallet
from granary_client.models import (
    AccessPolicy,
    AccessPolicyRead,
    CreateIndexBody,
    CreateIndexBodyIndexType,
    CreateQueryBody,
    CreateViewBody,
    Error,
    ErrorCode,
    ListBody,
    PutSkillsJsonBody,
    ReadCollectionFilters,
    ReadViewVariables,
    RegenerateKeyBody,
    RegenerateKeyBodyPermissionsItem,
    RunQueryParameters,
    StoreBody,
    UpdateCollectionBody,
    UploadBlobFilesBody,
)
from granary_client.types import File

url, app, key = sys.argv[1:]
client = AuthenticatedClient(base_url=url, token=key, raise_on_unexpected_status=True)
calls = 0


def call(operation, *path, status=200, **arguments):
    global calls
    calls += 1
    response = operation.sync_detailed(*path, client=client, **arguments)
    assert response.status_code == status, (operation.__name__, response.status_code, response.content)
    return response.parsed


def ids(page):
    return [record["id"] for record in page.records]


def documents():
    data = [{"id": f"f{n}", "title": f"Film {n}", "rating": n} for n in range(1, 6)]
    stored = call(store, status=202, body=StoreBody.from_dict({"root": f"{app}::films", "data": data}))
    assert len(stored.results) == 5
    query = {"root": f"{app}::films", "find": {"rating": {"gte": 2}}, "sort": ["-rating"], "limit": 2}
    first = call(list_, body=ListBody.from_dict(query))
    assert ids(first) == ["f5", "f4"] and first.total == 4
    second = call(list_, body=ListBody.from_dict({**query, "cursor": first.next_cursor}))
    assert ids(second) == ["f3", "f2"]
    body = CreateIndexBody("by_rating", "films", CreateIndexBodyIndexType.NUMBER, field_name="rating")
    call(create_index, app, status=201, body=body)
    assert isinstance(call(get_index, app, "films", "by_rating").created_at, datetime.datetime)


def filters(model, **values):
    return model.from_dict(values)


def public_reads():
    one = call(read_collection, app, "films", filters=filters(ReadCollectionFilters, rating=3))
    assert ids(one) == ["f3"]
    query = {"filters": filters(ReadCollectionFilters, **{"rating.$gte": 2}), "sort": "-rating", "limit": 3}
    page = call(read_collection, app, "films", **query)
    assert ids(page) == ["f5", "f4", "f3"] and page.limit == 3
    rest = call(read_collection, app, "films", cursor=page.next_cursor, select="id", **query)
    assert [record.to_dict() for record in rest.records] == [{"id": "f2"}]
    refused = call(read_collection, app, "films", status=400, filters=filters(ReadCollectionFilters, title="Film 1"))
    assert isinstance(refused, Error) and refused.code == ErrorCode.FIELD_NOT_INDEXED


def views_and_queries():
    view = {
        "name": "ratings",
        "source_collections": ["films"],
        "query": {"group_by": "rating", "aggregate": {"films": {"$count": "*"}}},
        "variables": {"rating": "rating"},
    }
    ticket = call(create_view, app, status=202, body=CreateViewBody.from_dict(view)).ticket_id
    deadline = time.monotonic() + 60
    while call(get_task, ticket).status != "Completed":
        assert time.monotonic() < deadline, "the view is not built in time"
        time.sleep(0.05)
    found = call(read_view, app, "ratings", variables=filters(ReadViewVariables, rating=4))
    assert [record.to_dict() for record in found.records] == [{"rating": 4, "films": 1}]
    page = call(read_view, app, "ratings", filter_='{"rating":{"lt":3}}', sort="-rating", limit=1, offset=1)
    assert page.records[0]["rating"] == 1 and page.total == 2
    query = {
        "name": "rated",
        "source_collection": "films",
        "base_query": {"select": ["title"], "sort": ["-rating"]},
        "parameters": [{"name": "least", "field_path": "rating.$gte", "required": True}],
    }
    call(create_query, app, status=201, body=CreateQueryBody.from_dict(query))
    run = call(run_query, app, "rated", parameters=filters(RunQueryParameters, least=4), limit=1, offset=1)
    assert run.records[0]["title"] == "Film 4" and run.total == 2


def blobs():
    form = UploadBlobFilesBody(blob=File(io.BytesIO(b"in a form"), "a.txt", "text/plain"), metadata='{"kind":"form"}')
    raw = File(io.BytesIO(b"as it is"))
    for body, text in [(form, b"in a form"), (raw, b"as it is")]:
        blob = call(upload_blob, app, "files", status=202, body=body)
        assert call(read_blob, app, "files", blob.blob_id).payload.read() == text
        part = call(read_blob, app, "files", blob.blob_id, status=206, range_="bytes=0-1")
        assert part.payload.read() == text[:2]
    call(delete_blob, app, "files", blob.blob_id, status=202)


def administration():
    permissions = [RegenerateKeyBodyPermissionsItem.READ]
    made = call(regenerate_key, app, body=RegenerateKeyBody(name="reader", permissions=permissions))
    call(revoke_key, app, made.key_id)
    call(put_skills, app, body=PutSkillsJsonBody(markdown="Films and ratings"))
    assert "Films and ratings" in call(get_skills, app)
    assert call(get_wallet, app).balance == 0
    policy = AccessPolicy(read=AccessPolicyRead.PRIVATE)
    changed = call(update_collection, app, "films", body=UpdateCollectionBody(access_policy=policy))
    assert changed.access_policy.read == AccessPolicyRead.PRIVATE
    assert call(get_collection_stats, app, "films").document_count == 5
    assert [one.name for one in call(list_collections, app)] == ["files", "films"]
    assert call(delete_collection, app, "films", force=True, cascade=True).success is True


documents()
public_reads()
views_and_queries()
blobs()
administration()
print(f"{calls} calls")
