#!/usr/bin/python3
"""The probe program holds machine code for A100 and H100, and PTX for what comes after them.

usage: fatbin_test.py PROGRAM ARCHITECTURE...   (sm_80 sm_90 compute_90)

Asks cuobjdump where there is one; else reads the fat binaries itself. A fat binary is a header (magic
0xba55ed50, version, header size, size of all entries) and entries: kind (1 PTX, 2 machine code), version,
header size, size of the payload, and at byte 28 the architecture (80 is sm_80). NVIDIA does not document
this; what nvcc 13.0 writes for sm_80, sm_90, sm_120, compute_80 and compute_90 reads so.
"""

import re
import shutil
import struct
import subprocess
import sys

MAGIC = struct.pack("<I", 0xBA55ED50)


def sections(data):
    """(name, bytes) of every section of a 64-bit little-endian ELF file."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise AssertionError("not a 64-bit little-endian ELF file")
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count, names = struct.unpack_from("<HHH", data, 58)
    headers = [struct.unpack_from("<IIQQQQ", data, table + i * size) for i in range(count)]
    base = headers[names][4]
    for name, kind, _, _, offset, length in headers:
        end = data.index(b"\0", base + name)
        yield data[base + name:end].decode(), b"" if kind == 8 else data[offset:offset + length]


def entries(fatbin):
    """(is_ptx, architecture) of every entry of the fat binaries in a section."""
    at = fatbin.find(MAGIC)
    while at >= 0:
        _, _, header, length = struct.unpack_from("<IHHQ", fatbin, at)
        entry, end = at + header, at + header + length
        while entry + 32 <= end:
            kind, _, header, payload = struct.unpack_from("<HHIQ", fatbin, entry)
            (architecture,) = struct.unpack_from("<I", fatbin, entry + 28)
            if kind not in (1, 2) or header < 32:
                raise AssertionError(f"unknown entry of kind {kind} at byte {entry}")
            yield kind == 1, architecture
            entry += header + payload
        at = fatbin.find(MAGIC, max(end, at + 4))


def architectures(program):
    dumper = shutil.which("cuobjdump") or shutil.which("/usr/local/cuda/bin/cuobjdump")
    if dumper:
        found = set()
        for option, prefix in (("--list-elf", "sm_"), ("--list-ptx", "compute_")):
            done = subprocess.run([dumper, option, program], capture_output=True, text=True, check=False)
            found |= {prefix + number for number in re.findall(r"sm_(\d+)", done.stdout)}
        return found
    with open(program, "rb") as file:
        data = file.read()
    found = {("compute_" if is_ptx else "sm_") + str(architecture)
             for name, content in sections(data) if name.startswith(".nv_fatbin")
             for is_ptx, architecture in entries(content)}
    return found


def main():
    program, wanted = sys.argv[1], set(sys.argv[2:])
    found = architectures(program)
    print("found", " ".join(sorted(found)))
    if not wanted or wanted - found:
        raise AssertionError(f"missing: {' '.join(sorted(wanted - found)) or 'nothing was asked for'}")


main()
