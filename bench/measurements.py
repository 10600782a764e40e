"""Measurements of a benchmark in a file, one JSON object a line: so a run can be made in pieces, and its tables printed later."""

import json
import pathlib


def add_arguments(parser):
    parser.add_argument("--save", default="", help="append the measurements to this file")
    parser.add_argument("--report", default="", help="print the tables of this file instead of measuring")


def append(path, rows):
    """Without a path nothing is kept."""
    if path:
        with open(path, "a", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)


def load(path):
    return [json.loads(line) for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines()]
