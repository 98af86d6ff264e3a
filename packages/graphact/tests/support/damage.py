"""Ways to damage a file: bytes that went wrong, and files that are well formed but say something else."""

import gzip
import io
import json
import struct
import zipfile

from graphact.storage import FORMAT, header_digest

NASTY = (
    None, "", 0, -1, 1, 2, 0.5, True, [], {}, [[]], "x" * 100, 10**9, 2**31, 2**40, 2**63, 10**30, -(2**63),
    float("nan"), float("inf"), 1e308, [1, 2, 3], {"a": 1}, "\x00", "0", "../../etc", [10**9], ["a"], [None], [-1],
    [[0.5]], "1" * 5000,
)  # fmt: skip


def mutate_bytes(content, way, rng):
    """Bytes that went wrong on their way."""
    size, place = len(content), int(rng.integers(len(content) + 1))
    some = rng.bytes(int(rng.choice([1, 8, 100, 4000])))
    altered = bytearray(content)
    if way == "cut":
        return content[:place]
    if way == "empty":
        return b""
    if way == "flip" and size:
        for _ in range(int(rng.choice([1, 1, 1, 2, 8, 50]))):
            altered[int(rng.integers(size))] ^= 1 << int(rng.integers(8))
    if way == "flip early" and size:
        for _ in range(int(rng.choice([1, 2, 4]))):
            altered[int(rng.integers(min(size, 200)))] = int(rng.integers(256))
    if way == "zeros":
        altered[place : place + 512] = bytes(len(altered[place : place + 512]))
    if way == "insert":
        altered[place:place] = some
    if way == "remove":
        del altered[place : place + int(rng.choice([1, 4, 64]))]
    if way == "append":
        altered += some
    if way == "repeat":
        altered[place:place] = altered[place : place + 300]
    if way == "noise":
        return rng.bytes(size)
    if way == "short noise":
        return some
    if way == "text":
        texts = (b"\xff\xfe\x00", b"null", b"[]", b"{}", b"0", b"\n" * 50, b"nan nan nan\n", b"a,b,c\n")
        return texts[int(rng.integers(len(texts)))]
    if way == "deep":
        return b"[" * 100_000 + b"]" * 100_000
    if way == "number":
        digits = [at for at, byte in enumerate(content) if 48 <= byte <= 57]
        if digits:
            at = int(rng.choice(digits))
            numbers = [b"9" * 400, *b"-1|99999999999|1e400|nan|0.5||x|1000000000|-0|inf".split(b"|")]
            altered[at : at + 1] = numbers[int(rng.integers(len(numbers)))]
    return bytes(altered)


def replace_somewhere(value, rng):
    """A JSON value with one part of it replaced, removed or renamed."""
    if isinstance(value, (dict, list)) and value and rng.random() < 0.85:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        key = keys[int(rng.integers(len(keys)))]
        changed = dict(value) if isinstance(value, dict) else list(value)
        kind = rng.random()
        if kind < 0.1:
            del changed[key]
        elif kind < 0.15 and isinstance(changed, list):
            changed += [changed[key]] * int(rng.integers(1, 4))
        elif kind < 0.2 and isinstance(changed, dict):
            changed[f"{key}x"] = changed.pop(key)
        else:
            changed[key] = replace_somewhere(changed[key], rng)
        return changed
    if isinstance(value, str) and rng.random() < 0.2:
        return value[: len(value) // 2]
    if isinstance(value, (int, float)) and not isinstance(value, bool) and rng.random() < 0.3:
        return value + int(rng.choice([-1, 1, 1000]))
    return NASTY[int(rng.integers(len(NASTY)))]


def mutate_json(content, rng):
    """A JSON document, or a line of many, that says something else; sealed again if it had a seal."""
    try:
        lines = content.split(b"\n")
        at = 0
        try:
            value = json.loads(content)
        except ValueError:
            at = int(rng.integers(max(1, len(lines) - 1)))
            value = json.loads(lines[at])
        else:
            lines = [content]
    except (ValueError, IndexError):
        return None
    changed = replace_somewhere(value, rng)
    if isinstance(changed, dict) and "header_sha256" in changed:
        changed["header_sha256"] = header_digest(changed)
    lines[at] = json.dumps(changed).encode()
    return b"\n".join(lines)


def mutate_safetensors(content, rng):
    """A file of tensors whose header says something else; the one of graphact is sealed again."""
    if len(content) < 9:
        return None
    size = struct.unpack("<Q", content[:8])[0]
    try:
        header = json.loads(content[8 : 8 + size])
    except ValueError:
        return None
    metadata = header.get("__metadata__", {})
    if FORMAT in metadata and rng.random() < 0.7:
        inner = replace_somewhere(json.loads(metadata[FORMAT]), rng)
        if isinstance(inner, dict):
            inner["header_sha256"] = header_digest(inner)
        header["__metadata__"] = {**metadata, FORMAT: json.dumps(inner)}
    else:
        header = replace_somewhere(header, rng)
    new = json.dumps(header).encode()
    length = len(new) if rng.random() < 0.9 else int(rng.choice([0, 2**40, 2**63 - 1, len(new) + 5]))
    return struct.pack("<Q", length) + new + content[8 + size :]


def npy_of(rng):
    """A file of an array that nobody expects, or whose header promises more than there is."""
    shape = [(), (0,), (3,), (2, 2), (10**6,), (10**12,), (2**62, 4), (-1,)][int(rng.integers(8))]
    dtype = ["<f8", "<f4", "<i8", "<i4", "|b1", "<c16", "<U4", "|S3", "|O", ">f8", "<f2", "|V7"][int(rng.integers(12))]
    described = {"descr": dtype, "fortran_order": bool(rng.integers(2)), "shape": shape}
    head = repr(described).encode().ljust(117) + b"\n"
    rest = rng.bytes(64) if rng.random() < 0.5 else bytes(int(rng.choice([8, 64, 8 * 10**6])))
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + rest


def mutate_zip(content, rng):
    """An archive in which a member is missing, more, damaged, unexpected or a bomb."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
    except (zipfile.BadZipFile, ValueError, KeyError):
        return None
    name = sorted(members)[int(rng.integers(len(members)))]
    kind = rng.random()
    if kind < 0.15:
        del members[name]
    elif kind < 0.5:
        members[name] = npy_of(rng)
    elif kind < 0.6:
        others = sorted(members)
        members[name] = members[others[int(rng.integers(len(others)))]]
    elif kind < 0.65:
        members[name] = bytes(200_000_000) if rng.random() < 0.05 else bytes(1_000_000)
    else:
        ways = ("cut", "flip", "flip early", "zeros", "insert", "append", "number", "text", "empty")
        members[name] = mutate_bytes(members[name], ways[int(rng.integers(len(ways)))], rng)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for member, body in members.items():
            archive.writestr(member, body)
    return stream.getvalue()


def mutate_gzip(content, rng):
    """Return a compressed file with damaged content; rarely a bomb."""
    try:
        inside = gzip.decompress(content)
    except (OSError, EOFError):
        return None
    if rng.random() < 0.02:
        inside = b" " * 300_000_000
    elif rng.random() < 0.5:
        inside = mutate_json(inside, rng) or inside[: len(inside) // 2]
    else:
        ways = ("cut", "flip", "flip early", "zeros", "insert", "append", "number", "text", "empty", "repeat")
        inside = mutate_bytes(inside, ways[int(rng.integers(len(ways)))], rng)
    return gzip.compress(inside, 1, mtime=0)


STRATEGIES = (
    "cut", "empty", "flip", "flip early", "zeros", "insert", "remove", "append", "repeat", "noise", "short noise",
    "text", "deep", "number", "other file", "inside",
)  # fmt: skip
SHARES = (3, 1, 6, 4, 2, 2, 2, 1, 1, 1, 1, 1, 0.5, 3, 2, 12)


def damage(content, way, rng, others):
    """A damaged file; ``others`` are the contents of files of other kinds."""
    if way == "other file":
        return others[int(rng.integers(len(others)))]
    if way != "inside":
        return mutate_bytes(content, way, rng)
    if content[:2] == b"PK":
        changed = mutate_zip(content, rng)
    elif content[:2] == b"\x1f\x8b":
        changed = mutate_gzip(content, rng)
    elif content[:6] == b"\x93NUMPY":
        changed = npy_of(rng)
    elif content[:1] in (b"{", b"["):
        changed = mutate_json(content, rng)
    else:
        changed = mutate_safetensors(content, rng) if content[7:9] == b"\x00{" else None
    return mutate_bytes(content, "number", rng) if changed is None else changed
