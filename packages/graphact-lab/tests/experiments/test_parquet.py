"""Rows in a Parquet file come back to the last bit, and damage is noticed."""

import math
import random
import struct

import pandas as pd
import pyarrow.parquet as pq
import pytest

from graphact_lab.parquet import decode_cells, decode_keys, encode_cells
from graphact_lab.statistics import REPLICA

ROW = {"experiment": "consensus", "seed": 3, "value": 0.1, "delayed": True, "settings": {"hops": [1, 2], "rate": None}}


def exact(value):
    """A value with its type, floats by their bits, and dictionaries with the order of their keys."""
    if isinstance(value, float):
        return ["float", "nan" if math.isnan(value) else struct.pack("<d", value)]
    if isinstance(value, dict):
        return [[key, exact(item)] for key, item in value.items()]
    if isinstance(value, list):
        return ["list", *map(exact, value)]
    return [type(value).__name__, value]


def come_back(cells):
    return decode_cells(encode_cells(cells))


@pytest.mark.parametrize(
    "values",
    [
        [0.1, -0.0, 5e-324, 1.7976931348623157e308, 1 / 3, math.nan, math.inf, -math.inf],
        [1, 2**63 - 1, -(2**63), None],
        [1, 2**64],  # no integer of 64 bits
        [1, 1.0, True],  # equal, and not the same
        [True, False, None],
        ["", "β", "two\nlines", "null", None],
        ["\ud800", "a"],  # a text that UTF-8 cannot hold
        [[], [0.5], None],
        [[[[0.1, 0.2]], []], [[[0.3]]]],
        [[1, 0.5], [0.25]],
        [[0.5, None], [0.25]],
        [[[[[0.5]]]]],
        [{"a": {"b": [1, 2.0, None]}}, {}, None],
        [None, None],
    ],
)
def test_values_come_back_to_the_last_bit(values):
    cells = {"a": [{"x": value} for value in values], "b": [{"x": values[0]}]}
    assert exact(come_back(cells)) == exact(cells)


def test_a_key_without_a_value_is_not_a_missing_key():
    cells = {"b": [{"x": None, "y": 1}, {"y": 2, "x": 3}], "a": [{"y": 4}, {}]}
    found = come_back(cells)
    assert list(found) == ["b", "a"]
    assert [[list(row.items()) for row in rows] for rows in found.values()] == [
        [[("x", None), ("y", 1)], [("y", 2), ("x", 3)]],
        [[("y", 4)], []],
    ]


def test_rows_are_objects_of_their_own():
    first, second = come_back({"a": [ROW, ROW]})["a"]
    first["settings"]["hops"].append(3)
    assert second == ROW


def test_other_tools_read_the_columns(tmp_path):
    rows = [ROW | {"beta": [0.25, 0.5], "value": value} for value in (0.1, 0.2)]
    (tmp_path / "rows.parquet").write_bytes(encode_cells({"a": rows}))
    frame = pd.read_parquet(tmp_path / "rows.parquet")
    assert frame.value.tolist() == [0.1, 0.2]
    assert frame.beta[1].tolist() == [0.25, 0.5]
    assert frame.settings[0] == '{"hops":[1,2],"rate":null}'
    assert frame.dtypes[["seed", "value", "delayed"]].tolist() == ["int64", "float64", "bool"]
    kinds = {column.name: column.logical_type.type for column in pq.ParquetFile(tmp_path / "rows.parquet").schema}
    assert kinds["settings"] == "JSON"


def test_the_same_rows_give_the_same_bytes():
    cells = {"a": [ROW], "b": [ROW | {"weights": [[[0.5]]]}]}
    assert encode_cells(cells) == encode_cells(come_back(cells))


def test_keys_are_read_alone():
    assert decode_keys(encode_cells({"b": [ROW, ROW], "a": [ROW]})) == {"a", "b"}


def test_fields_of_the_format_are_refused():
    with pytest.raises(ValueError, match=r"must not have the fields 'cell' and 'keys', got \['cell'\]"):
        encode_cells({"a": [{"cell": 1}]})


def test_a_flipped_bit_is_refused_or_changes_nothing():
    """Pages have checksums, and types and names of columns are checked."""
    cells = {"a": [ROW | {"value": number / 7, "seed": number} for number in range(50)]}
    content, numbers, refused = encode_cells(cells), random.Random(0), 0
    for _ in range(500):
        damaged = bytearray(content)
        damaged[numbers.randrange(len(content))] ^= 1 << numbers.randrange(8)
        try:
            found = decode_cells(bytes(damaged))
        except ValueError as error:
            refused += "\n" not in str(error)
        else:
            assert found == cells
    assert refused > 300


@pytest.mark.parametrize("content", [b"", b"PAR1", b"no parquet", b"PAR1" * 9])
def test_other_files_are_refused(content):
    with pytest.raises(ValueError, match=r"\w"):
        decode_cells(content)
    with pytest.raises(ValueError, match=r"\w"):
        decode_keys(content)


def test_other_tables_are_refused(tmp_path):
    pd.DataFrame({"x": [1]}).to_parquet(tmp_path / "x.parquet")
    with pytest.raises(ValueError, match="must have the columns 'cell' and 'keys', got x"):
        decode_cells((tmp_path / "x.parquet").read_bytes())


def test_fields_of_replicas_are_integers():
    """Columns that pair runs must not become floats when one is missing."""
    cells = {"a": [dict.fromkeys(REPLICA, 1), dict.fromkeys(REPLICA)]}
    assert exact(come_back(cells)) == exact(cells)
