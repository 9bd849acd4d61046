"""Decodes a trace with protoc and checks what a viewer relies on.

perfetto_test.py <protoc> <perfetto_subset.proto> <trace> <the same, gzipped>
"""

import gzip
import os
import re
import subprocess
import sys


def decode(protoc, proto, trace):
    result = subprocess.run(
        [protoc, "--decode=perfetto.protos.Trace", f"--proto_path={os.path.dirname(proto)}", proto],
        input=trace, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    assert result.returncode == 0, result.stderr.decode()
    return result.stdout.decode()


def one(packet, field, default=None):
    found = re.search(rf"\b{field}: (\S+)", packet)
    return found.group(1) if found else default


def main():
    protoc, proto, path, zipped = sys.argv[1:5]
    with open(path, "rb") as file:
        trace = file.read()
    with gzip.open(zipped) as file:
        assert file.read() == trace, "the gzipped trace is another one"
    text = decode(protoc, proto, trace)
    unknown = re.findall(r"^\s*\d+[:{ ].*$", text, re.M)
    assert not unknown, f"fields that are not Perfetto's: {unknown[:3]}"
    packets = text.split("\npacket {")

    # Defaults hold for what stands behind them in the file, and so do a sequence's words. Its clock counts from one
    # packet to the next, on from the snapshot that joins it to the trace's.
    defaults, clocks, interned = {}, {}, {}
    snapshot = re.compile(r"clocks \{\s+clock_id: 6\s+timestamp: (\d+)\s+\}\s+"
                          r"clocks \{\s+clock_id: (\d+)\s+timestamp: (\d+)\s+is_incremental: true\s+\}")
    for i, packet in enumerate(packets):
        sequence = one(packet, "trusted_packet_sequence_id")
        assert sequence is not None, "a packet of no sequence"
        if "trace_packet_defaults" in packet:
            assert sequence not in defaults, f"sequence {sequence} begins twice"
            assert one(packet, "sequence_flags") == "1", "a sequence begins without clearing what was"
            found = snapshot.search(packet)
            assert found and found.group(1) == found.group(3), "a clock that the trace's is not joined to"
            assert 64 <= int(found.group(2)) < 128 and found.group(2) == one(packet, "timestamp_clock_id")
            defaults[sequence], clocks[sequence] = one(packet, "track_uuid"), int(found.group(3))
        elif "interned_data" in packet:
            assert sequence in defaults and sequence not in interned
            interned[sequence] = {kind: dict(re.findall(kind + r" \{\s+iid: (\d+)\s+name: \"([^\"]+)\"", packet))
                                  for kind in ("event_categories", "event_names", "debug_annotation_names")}
        elif "track_event {" in packet:
            assert one(packet, "sequence_flags") == "2", "an event that uses defaults without asking for them"
            clocks[sequence] += int(one(packet, "timestamp"))
            packet = re.sub(r"\n  timestamp: \d+", f"\n  timestamp: {clocks[sequence]}", packet)
            packets[i] = packet + f"\n  track_uuid: {defaults[sequence]}"
    assert len(set(defaults.values())) == len(defaults), "a track of two sequences"

    # A viewer orders events by time and, where that is equal, as they stand in the file.
    events = [packet for packet in packets if "track_event {" in packet]
    packets = [packet for packet in packets if "track_event {" not in packet]
    packets += sorted(events, key=lambda packet: int(one(packet, "timestamp", "0")))
    open_slices, opened, counters = {}, 0, 0
    flows, ended, described = {}, 0, set()
    for packet in packets:
        if "track_descriptor" in packet:
            described.add(one(packet, "uuid"))
            parent = one(packet, "parent_uuid")
            assert parent is None or parent in described, "a track comes before its process"
        if "track_event {" not in packet:
            continue
        words = interned.get(one(packet, "trusted_packet_sequence_id"))
        at = int(one(packet, "timestamp", "0"))
        track = one(packet, "track_uuid")
        assert track in described, f"track {track} is not described"
        kind = one(packet, "type")
        depth = open_slices.setdefault(track, [])
        if kind == "TYPE_SLICE_BEGIN":
            opened += 1
            depth.append(at)
            # Only a receive that waited holds a second slice inside.
            assert len(depth) <= 2, f"slices overlap on track {track}"
            assert one(packet, "category_iids") in words["event_categories"], "a slice without a category"
            for annotation in re.findall(r"debug_annotations \{\s+name_iid: (\d+)", packet):
                assert annotation in words["debug_annotation_names"], "an annotation without a name"
            packet = re.sub(r"debug_annotations \{[^}]*\}", "", packet)
            assert one(packet, "name") or one(packet, "name_iid") in words["event_names"], "a slice without a name"
            if one(packet, "flow_ids") and "terminating" not in packet:
                flows[one(packet, "flow_ids")] = at
            if "terminating_flow_ids" in packet:
                ended += 1
                assert one(packet, "terminating_flow_ids") in flows, "a flow ends before it begins"
        elif kind == "TYPE_SLICE_END":
            assert depth, f"track {track} ends what it did not begin"
            assert depth.pop() <= at
        elif kind == "TYPE_COUNTER":
            counters += 1
    assert not any(open_slices.values()), "a slice never ends"
    assert ended == len(flows), f"{len(flows)} flows begin, {ended} end"
    assert flows or not re.search(r'name: "send', text), "sends without an arrow"
    assert counters > 0 and "UNIT_SIZE_BYTES" in text, "no memory counters"
    print(f"{opened} slices, {len(flows)} flows, {counters} counter values, {len(trace)} bytes")


if __name__ == "__main__":
    main()
