"""Run by csv.test.ts in the folder of jobs.json: reads and writes tables with the module csv, as its documentation shows.

Prints what each of the jobs has read as a list in JSON, null for one that has written.
"""

import csv
import json

DIALECTS = {
    "excel": {"dialect": "excel"},
    "excel-tab": {"dialect": "excel-tab"},
    "unix": {"dialect": "unix"},
    "semicolon": {"dialect": "excel", "delimiter": ";"},
    "bar": {"dialect": "excel", "delimiter": "|"},
}


def read(path):
    with open(path, newline="", encoding="utf-8") as file:
        table = list(csv.reader(file, strict=True))
    with open(path, newline="", encoding="utf-8") as file:
        records = list(csv.DictReader(file))
    names, *rows = table
    assert records == [dict(zip(names, row, strict=True)) for row in rows]
    return table


def write(path, table, dialect, encoding):
    with open(path, "w", newline="", encoding=encoding) as file:
        csv.writer(file, **DIALECTS[dialect]).writerows(table)


def run(job):
    table = job["table"] if "table" in job else read(job["read"])
    if "write" not in job:
        return table
    write(job["write"], table, job["dialect"], job["encoding"])


with open("jobs.json", encoding="utf-8") as jobs:
    print(json.dumps([run(job) for job in json.load(jobs)]))
