"""The paced experiments of the lab: each a scenario of trainyard and the script that real ranks run for it."""

import data_parallel
import model_parallel
from scenarios import (FP32, LINE_BITS_PER_S, STEPS, Experiment, layers_of, model_of, ring_of_hosts, scenario, server,
                       slowed, star, transformer, two_switches)

# Those that run once more with one queue, first in, first out, at each end of a cable.
QUEUED = ("server-4x1", "server-8x2", "stages-across-4-2to1", "stages-across-8-4to1", "groups-4-250k-750k",
          "groups-8-500k-250k", "jobs-4-equal", "jobs-8-uneven", "experts-8-even", "experts-8-uneven")


def _slow_link(messages):
    return {**star(messages, 3), "other_nodes": [{"nodes": 1, "node": server(messages, LINE_BITS_PER_S // 2)}]}


def _all_reduce(messages, name, topology, cluster, ranks, megabytes, algorithm, group="all-reduce", **more):
    layers = layers_of(1, 5, 5, int(megabytes * 1e6 / FP32))
    buffer = f"{megabytes}MB"
    data = {"kind": "allreduce", "bucket_size": buffer, "first_bucket_size": buffer, "overlap_backward": False}
    options = {"layers": layers, "algorithm": algorithm, "steps": STEPS, **more.pop("options", {})}
    return Experiment(name, group, topology, ranks,
                      scenario(name, model_of(layers), cluster, ranks, {"dp": ranks, "data_parallel": data},
                               collectives={"allreduce": {"algorithm": algorithm}}, **more.pop("scenario", {})),
                      data_parallel.all_reduce, options, **more)


def all_reduces(messages):
    found = []
    for ranks in (2, 4, 8, 16):
        for megabytes in (1, 4):
            found.append(_all_reduce(messages, f"ring-{ranks}-{megabytes}mb", "star", star(messages, ranks), ranks,
                                     megabytes, "ring", what="gloo's ring"))
    for ranks in (2, 4, 8):
        found.append(_all_reduce(messages, f"naive-{ranks}", "star", star(messages, ranks), ranks, 2, "naive",
                                 what="all to one rank and back"))
    for ranks in (2, 4, 8, 16):
        found.append(_all_reduce(messages, f"tree-{ranks}", "star", star(messages, ranks), ranks, 8, "tree",
                                 what="two trees, in pieces"))
    for ranks in (4, 8, 16):
        found.append(_all_reduce(messages, f"halving-{ranks}", "star", star(messages, ranks), ranks, 4,
                                 "halving_doubling", what="recursive halving and doubling"))
    for servers, per_server in ((2, 2), (4, 2), (2, 4), (4, 4)):
        ranks = servers * per_server
        # Sixteen hosts at twice the rate are more than two cores can carry.
        inside = LINE_BITS_PER_S * (2 if ranks <= 8 else 1)
        cluster = star(messages, servers, gpus=per_server, inside_bits_per_s=inside)
        found.append(_all_reduce(messages, f"hierarchical-{servers}x{per_server}", "servers", cluster, ranks, 24,
                                 "hierarchical", options={"per_server": per_server},
                                 what="rings inside servers and across, in pieces"))
    for ranks in (4, 8):
        found.append(_all_reduce(messages, f"ring-cable-{ranks}", "ring", ring_of_hosts(messages, ranks), ranks, 4,
                                 "ring", what="hosts with cables to their neighbours alone"))
    for ranks in (4, 8):
        found.append(_all_reduce(messages, f"ring-dumbbell-{ranks}", "dumbbell",
                                 two_switches(messages, ranks, ranks // 2), ranks, 4, "ring",
                                 what="crosses the narrow uplink once each way"))
    found.append(_all_reduce(messages, "slow-link-ring", "uneven", _slow_link(messages), 4, 4, "ring",
                             group="slow link", what="one host's cable has half of the rate"))
    return found


def _ddp(messages, name, topology, cluster, ranks, bucket_mb, layers, group="DDP", slowdown=None, **more):
    data = {"kind": "allreduce", "bucket_size": f"{bucket_mb}MB", "first_bucket_size": "1MB"}
    options = {"layers": layers, "bucket_bytes": bucket_mb * 1e6, "first_bucket_bytes": 1e6, "steps": STEPS}
    slow_options, changes = slowed(*slowdown) if slowdown else ({}, {})
    return Experiment(name, group, topology, ranks,
                      scenario(name, model_of(layers), cluster, ranks, {"dp": ranks, "data_parallel": data},
                               collectives={"allreduce": {"algorithm": "ring"}}, **changes),
                      data_parallel.distributed_data_parallel, {**options, **slow_options}, **more)


def data_parallels(messages):
    found = []
    even, long = layers_of(12, 20, 40, 250_000), layers_of(12, 20, 80, 250_000)
    for ranks in (2, 4, 8, 16):
        # Sixteenths of a megabyte are messages that two cores cannot carry as fast as the cables could.
        for bucket_mb, layers, word in ((3 if ranks == 16 else 1, even, "exposed"), (3, long, "hidden")):
            found.append(_ddp(messages, f"ddp-{ranks}-{word}", "star", star(messages, ranks), ranks, bucket_mb, layers,
                              what=f"PyTorch's own, buckets of {bucket_mb} MB, mostly {word}"))
    for ranks in (4, 8):
        found.append(_ddp(messages, f"slow-rank-{ranks}", "star", star(messages, ranks), ranks, 1, even,
                          slowdown=(1, 1.5), group="slow rank", what="rank 1 computes 1.5 times as long"))
    found.append(_ddp(messages, "slow-link-ddp", "uneven", _slow_link(messages), 4, 1, even, group="slow link",
                      what="one host's cable has half of the rate"))
    for ranks in (4, 8):
        found.append(_ddp(messages, f"ddp-dumbbell-{ranks}", "dumbbell", two_switches(messages, ranks, ranks // 2),
                          ranks, 1, even, what="a ring crosses the narrow uplink once each way"))
    for ranks in (2, 4, 8):
        layers = layers_of(6, 30, 60, 200_000)
        found.append(Experiment(
            f"fsdp-{ranks}", "FSDP", "star", ranks,
            scenario(f"fsdp-{ranks}", model_of(layers), star(messages, ranks), ranks,
                     {"dp": ranks, "data_parallel": {"kind": "zero3", "prefetch_layers": 1,
                                                     "bucket_size": "800KB"}}),
            data_parallel.fully_sharded, {"layers": layers, "steps": STEPS},
            what="gathers a layer ahead, reduce-scatters"))
    return found


def parameter_servers(messages):
    found = []
    layers = layers_of(4, 10, 15, 125_000)

    def cluster(hosts, shards):
        return {**star(messages, hosts), "gpus_used": [0] * shards + [1] * (hosts - shards)}
    for workers, shards in ((2, 1), (4, 1), (8, 1), (2, 2), (4, 2), (8, 2), (8, 4), (12, 4)):
        hosts, name = workers + shards, f"server-{workers}x{shards}"
        data = {"kind": "parameter_server", "server": list(range(shards)), "shards": shards}
        found.append(Experiment(
            name, "parameter server", "star", hosts,
            scenario(name, model_of(layers), cluster(hosts, shards), workers, {"dp": workers, "data_parallel": data}),
            data_parallel.parameter_server, {"layers": layers, "shards": shards, "steps": STEPS}, contention=True,
            servers=shards,
            what=f"{workers} workers, {shards} shard{'s' if shards > 1 else ''}"))
    layers = layers_of(4, 40, 60, 62_500)
    for workers, slow, staleness in ((2, None, None), (4, None, None), (8, None, None), (4, 3, None), (4, 3, 1),
                                     (8, 2, 2)):
        word = "async" if staleness is None else f"stale-{staleness}"
        name = f"{word}-{workers}" + ("-slow" if slow else "")
        data = {"kind": "parameter_server", "server": 0, "shards": 1,
                "updates": "asynchronous" if staleness is None else "stale"}
        if staleness is not None:
            data["staleness"] = staleness
        options = {"layers": layers, "staleness": staleness,
                   "rounds": 16 + workers // 2 + 3 * (staleness or 0)}
        slow_options, changes = slowed(1, slow, of_lab=2) if slow else ({}, {})
        found.append(Experiment(
            name, "asynchronous", "star", workers + 1,
            scenario(name, model_of(layers), cluster(workers + 1, 1), workers, {"dp": workers, "data_parallel": data},
                     **changes),
            data_parallel.asynchronous_server, {**options, **slow_options}, servers=1, quantity="updates/s",
            contention=True, what="updates per second"))
    return found


def _pipeline(messages, name, topology, cluster, stages, micro_batches, layers, group, replicas=1, schedule="gpipe",
              order="tp-dp-pp", slow=None, **more):
    """A pipeline on each replica; order: how ranks are counted, which decides what crosses an uplink.

    trainyard counts a table's first and last layer as embedding and head, which go with the outer stages.
    """
    size = f"{sum(layer['parameters'] for layer in layers) * FP32}B"  # one bucket
    data = {"kind": "allreduce", "bucket_size": size, "first_bucket_size": size, "overlap_backward": False}
    options = {"layers": layers, "schedule": schedule, "micro_batches": micro_batches, "steps": STEPS, "order": order,
               "stages": stages, "stage_layers": [(i + (i > 0), i + 2 + (i == stages - 1)) for i in range(stages)]}
    slow_options, changes = slowed(*slow) if slow else ({}, {})
    parallelism = {"pp": stages, "dp": replicas, "rank_order": order, "data_parallel": data,
                   "pipeline": {"schedule": schedule, "layer_split": [1] * stages}}
    return Experiment(name, group, topology, stages * replicas,
                      scenario(name, model_of(layers), cluster, micro_batches * replicas, parallelism,
                               collectives={"allreduce": {"algorithm": "ring"}}, **changes),
                      model_parallel.pipeline, {**options, **slow_options}, **more)


def pipelines(messages):
    def of(schedule, stages, micro_batches, ending="", group="pipeline", slow=None):
        layers = layers_of(stages + 2, 20, 40, 25_000, outputs=125_000)
        for layer in (layers[0], layers[1], layers[-2], layers[-1]):
            layer["forward"], layer["backward"] = layer["forward"] / 2, layer["backward"] / 2
        return _pipeline(messages, f"{schedule}-{stages}x{micro_batches}{ending}", "star", star(messages, stages),
                         stages, micro_batches, layers, group, schedule=schedule, slow=slow,
                         what=f"{stages} stages, {micro_batches} micro-batches")
    found = [of(schedule, stages, micro_batches) for stages in (2, 4, 8) for schedule in ("gpipe", "1f1b")
             for micro_batches in (4, 8)]
    return found + [of("1f1b", 4, 8, "-slow", "slow rank", slow=(1, 1.5))]


def _plan_script(ranks, moves):
    """options["script"] of model_parallel.scripted from the plan: each rank's passes up to each message.

    moves(lane, name, bytes): the kind of its lane and what moves then; None: no message of the script.
    """
    def rows_of(slices):
        rows, seconds, label = [], 0.0, ""
        for _, lane, name, begin, end, moved in sorted(slices, key=lambda s: (s[3], s[4])):
            if lane == "compute" and not name.startswith("wait"):
                seconds, label = seconds + end - begin, name
            elif (found := moves(lane, name, moved)) is not None:
                rows.append((label, seconds, *found))
                seconds = 0.0
        return rows + [(label, seconds, "", 0)]

    def script(slices, stand_ins):
        by_rank = {}
        for piece in slices:
            if piece[0].startswith("rank "):
                by_rank.setdefault(int(piece[0].split()[1]), []).append(piece)
        each = [rows_of(by_rank[stand_ins[rank]]) for rank in range(ranks)]
        return [(rows[0][0], [row[1] for row in rows], *rows[0][2:]) for rows in zip(*each)]
    return script


def contentions(messages):
    found = []
    for replicas in (2, 4):
        hosts = 2 * replicas
        for over in (1, 2) if replicas == 2 else (2, 4):
            layers = layers_of(4, 10, 20, 25_000, outputs=250_000)
            found.append(_pipeline(messages, f"stages-across-{hosts}-{over}to1", "dumbbell",
                                   two_switches(messages, hosts, over), 2, 4, layers, "fat tree", replicas,
                                   contention=True, what=f"{replicas} pipelines cross an uplink of {over}:1"))
    for hosts, sizes in ((4, (500_000, 500_000)), (4, (250_000, 750_000)), (8, (500_000, 250_000))):
        layers = layers_of(4, 5, 10, 1_000, outputs=10)
        layers[0]["parameters"], layers[-1]["parameters"] = sizes
        found.append(_pipeline(messages, f"groups-{hosts}-{sizes[0] // 1000}k-{sizes[1] // 1000}k", "dumbbell",
                               two_switches(messages, hosts, hosts // 2), 2, 1, layers, "two groups", hosts // 2,
                               order="tp-pp-dp", contention=True, what="two all-reduces that share a narrow uplink"))
    return found + shared_clusters(messages) + exchanges(messages)


def shared_clusters(messages):
    """Two jobs on every other host, which meet on the narrow uplink between two switches."""
    found = []
    light, heavy = layers_of(6, 20, 40, 125_000), layers_of(6, 5, 10, 125_000)
    for hosts, layers, word in ((4, (light, light), "equal"), (4, (heavy, heavy), "busy"),
                                (4, (light, heavy), "uneven"), (8, (light, light), "equal"),
                                (8, (heavy, light), "uneven")):
        members = [[host for host in range(hosts) if host % 2 == job] for job in (0, 1)]
        used = [[int(host in own) for host in range(hosts)] for own in members]
        name = f"jobs-{hosts}-{word}"
        data = {"kind": "allreduce", "bucket_size": "1MB", "first_bucket_size": "1MB"}
        cluster = {**two_switches(messages, hosts, hosts // 2), "gpus_used": used[0]}
        whole = scenario(name, model_of(layers[0]), cluster, hosts // 2, {"dp": hosts // 2, "data_parallel": data},
                         collectives={"allreduce": {"algorithm": "ring"}},
                         other_jobs=[{"name": "other", "gpus_used": used[1], "with": {"model": model_of(layers[1])}}])
        options = {"bucket_bytes": 1e6, "first_bucket_bytes": 1e6, "series": 3,
                   "jobs": [{"ranks": own, "layers": of} for own, of in zip(members, layers)]}
        found.append(Experiment(name, "two jobs", "dumbbell", hosts, whole, data_parallel.jobs, options,
                                contention=True, what="the first of two jobs that share a narrow uplink"))
    return found


def _exchange_script(ranks, tokens, hidden, load):
    """All-to-alls by the load of the experts, one on each rank, and the all-reduce of what all hold alike."""
    rows = [round(tokens * share / sum(load)) * hidden for share in load]
    out = [[rows[j] if i != j else 0 for j in range(ranks)] for i in range(ranks)]
    back = [[rows[i] if i != j else 0 for j in range(ranks)] for i in range(ranks)]

    def moves(lane, name, moved):
        if lane == "expert parallel":
            return "expert", out if ("dispatch" in name) == ("backward" not in name) else back
        return ("data", moved // FP32) if lane == "data parallel" else None
    return _plan_script(ranks, moves)


def exchanges(messages):
    """Experts, one on each rank, whose rows all ranks exchange, evenly or not."""
    found = []
    tokens, hidden = 512, 512
    for ranks, load, word in ((4, (1, 1, 1, 1), "even"), (8, (1,) * 8, "even"), (4, (4, 2, 1, 1), "uneven"),
                              (8, (4, 2, 2, 1, 1, 1, 1, 4), "uneven")):
        name = f"experts-{ranks}-{word}"
        model = transformer(2, hidden, ffn_hidden=hidden, moe={"experts": ranks, "top_k": 1}, biases=False,
                            tied_embeddings=False)
        # What all ranks hold alike: attention, norms, router, embeddings; experts have no replica.
        data = {"kind": "allreduce", "bucket_size": "1GB", "first_bucket_size": "1GB", "overlap_backward": False}
        expert = {"load": list(load)} if word == "uneven" else {}
        whole = scenario(name, model, star(messages, ranks, tflops=0.1), ranks,
                         {"dp": ranks, "ep": ranks, "data_parallel": data, "expert_parallel": expert},
                         training={"sequence_length": tokens, "execution": "fused"},
                         collectives={"allreduce": {"algorithm": "ring"}})
        found.append(Experiment(name, "experts", "star", ranks, whole, model_parallel.scripted, {"steps": STEPS},
                                script=_exchange_script(ranks, tokens, hidden, load), contention=True,
                                what=f"two layers of {ranks} experts, {word} rows"))
    return found


def tensor_parallels(messages):
    def moves(lane, name, moved):
        return ("tensor", moved // FP32) if lane == "tensor parallel" else None
    found = []
    for ranks, hidden, tokens in ((2, 256, 512), (2, 512, 256), (4, 256, 512), (4, 512, 256), (8, 512, 512)):
        name = f"tensor-{ranks}-{hidden}x{tokens}"
        found.append(Experiment(
            name, "tensor", "star", ranks,
            scenario(name, transformer(2, hidden), star(messages, ranks, tflops=0.02), 1,
                     {"tp": ranks, "tensor_parallel": {"overlap": "none"}}, training={"sequence_length": tokens},
                     collectives={"allreduce": {"algorithm": "ring"}}),
            model_parallel.scripted, {"steps": STEPS}, script=_plan_script(ranks, moves),
            what="two layers, an all-reduce behind each half"))
    return found


def all_of(messages):
    """Every paced experiment, in the order of the table."""
    fair = (all_reduces(messages) + data_parallels(messages) + pipelines(messages) + tensor_parallels(messages) +
            parameter_servers(messages) + contentions(messages))
    return fair + [x.queued() for x in fair if x.name in QUEUED]
