"""What trainyard predicts for a scenario: its JSON, and its slices read from the Perfetto trace that it writes."""

import gzip
import json
import pathlib
import subprocess


class PredictionError(Exception):
    """trainyard refused a scenario or samples; the message is its own."""


def _varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return value, at
        shift += 7


def _fields(data):
    """(number, value) of a message of protocol buffers; a nested message is bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        if key & 7 == 0:
            value, at = _varint(data, at)
        elif key & 7 == 1:
            value, at = data[at:at + 8], at + 8
        elif key & 7 == 2:
            size, at = _varint(data, at)
            value, at = data[at:at + size], at + size
        else:
            value, at = data[at:at + 4], at + 4
        yield key >> 3, value


def _first(data, number, default=None):
    return next((value for found, value in _fields(data) if found == number), default)


def slices_of(path):
    """Slices of a trace, lane by lane: (rank's track, lane, name, begin, end, bytes); in seconds, 0 bytes if none move.

    Fields of Perfetto's protos: Trace.packet 1; TracePacket timestamp 8, sequence 10, track_event 11, interned_data 12,
    defaults 59, track_descriptor 60; TrackDescriptor uuid 1, name 2, process 3 (its name 6), parent 5; defaults'
    track_event 11 (its track 11); TrackEvent type 9, name_iid 10, debug_annotations 4 (name_iid 1, int_value 4);
    InternedData event_names 2 and debug_annotation_names 3 (iid 1, name 2). Each lane
    is a sequence with a clock that counts from packet to packet.
    """
    with gzip.open(path, "rb") as stream:
        data = stream.read()
    tracks, sequences, slices = {}, {}, []
    for number, packet in _fields(data):
        fields = dict(_fields(packet))
        if number != 1 or 10 not in fields:
            continue
        sequence = sequences.setdefault(fields[10], {"names": {}, "words": {}, "clock": 0, "track": None, "open": []})
        if 60 in fields:
            track = dict(_fields(fields[60]))
            label = track.get(2) or (_first(track[3], 6, b"") if 3 in track else b"")
            tracks[track[1]] = (label.decode(), track.get(5))
        if 59 in fields:
            sequence["track"] = _first(_first(fields[59], 11, b""), 11)
        for found, entry in _fields(fields.get(12, b"")):
            if found in (2, 3):
                sequence["names" if found == 2 else "words"][_first(entry, 1)] = _first(entry, 2, b"").decode()
        if 11 not in fields:
            continue
        sequence["clock"] += fields.get(8, 0)
        event = dict(_fields(fields[11]))
        if event.get(9) == 1:
            notes = [dict(_fields(note)) for found, note in _fields(fields[11]) if found == 4]
            moved = next((note.get(4, 0) for note in notes if sequence["words"].get(note.get(1)) == "bytes"), 0)
            sequence["open"].append((sequence["names"].get(event.get(10), ""), sequence["clock"], moved))
        elif event.get(9) == 2 and sequence["open"]:
            name, begin, moved = sequence["open"].pop()
            lane, parent = tracks.get(sequence["track"], ("", None))
            slices.append((tracks.get(parent, ("", None))[0], lane, name, begin * 1e-9, sequence["clock"] * 1e-9,
                           moved))
    return slices


def _asked(trainyard, *words):
    done = subprocess.run([trainyard, "--quiet", *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise PredictionError(done.stderr.strip() or done.stdout.strip())
    return done.stdout


def predict(trainyard, scenario, folder):
    """Runs a scenario file and returns (its JSON, its slices); the report stays in the folder."""
    found = json.loads(_asked(trainyard, "run", scenario, "--json", "--force", "-o", folder))
    return found, slices_of(pathlib.Path(folder) / "trace.pftrace.gz")


def stand_ins(trainyard, scenario):
    """For each rank the one that stands for it in the slices, as `explain --stage classes` says: {0: 0, 1: 1, 2: 0}."""
    found = {}
    for line in _asked(trainyard, "explain", scenario, "--stage", "classes").splitlines()[1:]:
        columns = line.split()
        for part in columns[-1].split(","):
            first, _, last = part.partition("-")
            found.update({rank: int(columns[1]) for rank in range(int(first), int(last or first) + 1)})
    return found


def fitted(trainyard, samples, profile, preset):
    """Fits a profile of the samples and nothing else, as of the preset, and returns it."""
    _asked(trainyard, "fit", samples, "-o", profile, "--gpu", preset, "--base", "none", "--force")
    return json.loads(pathlib.Path(profile).read_text(encoding="utf-8"))
