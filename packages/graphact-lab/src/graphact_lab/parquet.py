"""Finished cells as one Parquet file: the rows of a run as they are published.

A column for each field of the rows, in the order in which fields first appear: integers, floats, booleans and texts as
themselves, lists of floats as lists, everything else as JSON. Two more columns restore the rows exactly: ``cell``, the
key of the cell, and ``keys``, the fields that a row has, since null stands for None and for a missing field. The same
rows give the same bytes with the same version of pyarrow.
"""

import io
import json
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Row = dict[str, Any]

CELL, KEYS = "cell", "keys"
SCALARS = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}
JSON = pa.json_(pa.string())
LISTS = [pa.list_(pa.float64()), pa.list_(pa.list_(pa.float64())), pa.list_(pa.list_(pa.list_(pa.float64())))]
TYPES = [*SCALARS.values(), *LISTS, JSON]
MAX_BYTES = 2**28  # of a file once it is decompressed, at eight bytes a value
COMPRESSION = {"compression": "zstd", "compression_level": 9}


def encode_cells(cells: dict[str, list[Row]]) -> bytes:
    """Return the Parquet file of the rows of some cells, by key."""
    rows = [row for own in cells.values() for row in own]
    fields = dict.fromkeys(field for row in rows for field in row)
    if reserved := fields.keys() & {CELL, KEYS}:
        raise ValueError(f"a row must not have the fields {CELL!r} and {KEYS!r}, got {sorted(reserved)}")
    columns = {
        CELL: pa.array([key for key, own in cells.items() for _ in own], pa.string()),
        KEYS: pa.array([to_json(list(row)) for row in rows], pa.string()),
    }
    columns |= {field: make_column([row.get(field) for row in rows]) for field in fields}
    floats = [path for field, column in columns.items() for path in float_paths(field, column.type)]
    names = [field for field, column in columns.items() if not float_paths(field, column.type)]
    stream = io.BytesIO()
    pq.write_table(
        pa.table(columns),
        stream,
        use_dictionary=names,
        column_encoding=dict.fromkeys(floats, "BYTE_STREAM_SPLIT"),
        write_statistics=False,
        write_page_checksum=True,
        store_schema=False,
        **COMPRESSION,
    )
    return stream.getvalue()


def decode_cells(content: bytes) -> dict[str, list[Row]]:
    """Return the rows of each cell, by key, exactly as they were encoded.

    Raises:
        ValueError: the content is not such a file, or is damaged.
    """
    columns: dict[str, list[Any]] = read_columns(content)
    if not {CELL, KEYS} <= columns.keys() or None in columns[CELL]:
        raise ValueError(f"it must have the columns {CELL!r} and {KEYS!r}, got {', '.join(columns)[:200]}")
    fields_of: dict[str, Any] = {text: json.loads(text or "null") for text in set(columns[KEYS])}
    if not all(isinstance(fields, list) and {*map(str, fields)} <= columns.keys() for fields in fields_of.values()):
        raise ValueError(f"every text in the column {KEYS!r} must be a list of columns, as JSON")
    cells: dict[str, list[Row]] = {}
    for place, (cell, keys) in enumerate(zip(columns[CELL], columns[KEYS], strict=True)):
        cells.setdefault(cell, []).append({field: columns[field][place] for field in fields_of[keys]})
    return cells


def decode_keys(content: bytes) -> set[str]:
    """Return the keys of the cells that a file holds."""
    return set(read_columns(content, [CELL])[CELL])


def read_columns(content: bytes, names: Iterable[str] | None = None) -> dict[str, list[Any]]:
    """Return the values of some columns, or of all, with JSON decoded."""
    try:
        file = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True, arrow_extensions_enabled=True)
        groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
        num_rows, size = (sum(getattr(group, name) for group in groups) for name in ("num_rows", "total_byte_size"))
        if max(size, 8 * num_rows * file.metadata.num_columns) > MAX_BYTES:
            raise ValueError(f"it holds more than {MAX_BYTES} bytes")
        if num_rows != file.metadata.num_rows:
            raise ValueError(f"its parts must have {file.metadata.num_rows} rows, got {num_rows}")
        table = file.read(names, use_threads=False)
        table.validate(full=True)
        for name, kind in zip(table.column_names, table.schema.types, strict=True):
            if kind not in TYPES:
                raise ValueError(f"column {name[:100]!r} must hold numbers, texts, JSON or lists of floats, got {kind}")
        return {
            name: decode_json(column.to_pylist()) if column.type == JSON else column.to_pylist()
            for name, column in zip(table.column_names, table.columns, strict=True)
        }
    except (pa.ArrowException, OSError, KeyError, MemoryError) as error:
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from error


def make_column(values: list[Any]) -> pa.Array:
    """Return a column of a type that restores every value exactly: JSON where there is no other."""
    kinds = {type(value) for value in values if value is not None}
    try:
        if len(kinds) == 1 and (scalar := SCALARS.get(next(iter(kinds)))):
            return pa.array(values, scalar)
        for depth, kind in enumerate(LISTS, 1) if kinds == {list} else ():
            if all(value is None or is_float_list(value, depth) for value in values):
                return pa.array(values, kind)
    except (pa.ArrowInvalid, OverflowError, UnicodeEncodeError):  # no integer of 64 bits, no text of Unicode
        pass
    return pa.array([None if value is None else to_json(value) for value in values], JSON)


def is_float_list(value: Any, depth: int) -> bool:
    """Return whether a value is a list of floats, nested to a depth."""
    if depth == 0:
        return type(value) is float
    return type(value) is list and all(is_float_list(item, depth - 1) for item in value)


def float_paths(field: str, kind: pa.DataType) -> list[str]:
    """Return the path of the floats in a column, none where it holds something else."""
    path = field
    while pa.types.is_list(kind):
        path, kind = f"{path}.list.element", kind.value_type
    return [path] if pa.types.is_float64(kind) else []


def to_json(value: Any) -> str:
    """Return the JSON of a value, without blanks."""
    return json.dumps(value, separators=(",", ":"))


def decode_json(texts: list[str | None]) -> list[Any]:
    """Return the values of JSON texts, None for None."""
    return [None if text is None else json.loads(text) for text in texts]
