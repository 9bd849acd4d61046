"""The Ultra-Scale Playbook: nanotron, networks like Llama of 1.3B to 80B on 8 to 512 H100, with runs out of memory.

Eager PyTorch, fp32 gradients and master weights, sequence parallelism with tensor parallelism, 1F1B with blocking
sends, stages cut by parameters as nanotron does. What the table leaves out is that of its other rows of the size. The
printed peak is of reserved memory of rank 0, which writes the table (huggingface/nanotron, src/nanotron/helpers.py:
log_throughput and write_to_csv). nanotron's time per launch was fitted on hf-0474, hf-0479 and hf-0480. Layouts of
one network, batch and number of GPUs are alternatives.

The network is as the jobs themselves measured it, as the cluster was not always well. In half of them an all-reduce, an
all-gather and a reduce-scatter among all ranks took equally long: the ranks times 0.29 ms from 64 to 512 of them, if
messages had 1 GB (their size is not printed). That is the host's time for a call. All of these have an all-reduce
inside a server of 425 GB/s where the others reach 458. Nothing here was fitted on steps but the launch.
"""

from common import LeftOut, h100, llama, precision, record

FILE = "hf_ultrascale_h100.csv"
SOFTWARE = "nanotron"
SOURCE = "Hugging Face, The Ultra-Scale Playbook, benchmark of nanotron"
FFN = {"1.34": 8192, "3.57": 8192, "8.86": 14336, "80.0": 28672, "469.0": 53248}
TIED = ("1.34", "3.57")


def stage_layers(model, stages):
    """
    As nanotron cuts them: the block whose cost crosses a stage's share is still that stage's, so that early stages have
    more and the last may get none. The smallest network's head is four layers, so that two and four stages end just
    at their shares: there its source would give one layer more, but time per micro-batch of jobs that the host or its
    calls bound is as 10 : 5 : 3 for 2, 4 and 8 stages (211, 100 and 60 ms, 85, 42 and 24 ms), not 11 : 6 : 3.

    Source: huggingface/nanotron, src/nanotron/models/base.py (build_model) and llama.py (get_block_compute_costs).
    """
    layer = 4 * model["hidden"] ** 2 + 3 * model["ffn"] * model["hidden"]
    total = model["layers"] * layer + model["vocab"] * model["hidden"]
    done, stage, split = 0, 0, [0] * stages
    for _ in range(model["layers"]):
        done += layer
        split[stage] += 1
        if done >= total * ((stage + 1) / stages):
            stage += 1
    return split


# GB/s of an all-reduce among all ranks, by their number: medians of the jobs whose calls were not slow.
WELL = {16: 428, 32: 206, 64: 187, 128: 173, 256: 188, 512: 173}
# All-gathers of the same jobs among 64 to 512 ranks, less their bytes, of messages of 1 GB.
STEPS = [{"bytes": "4MB", "time": "35us"}, {"bytes": "8MB", "time": "28us"}, {"bytes": "16MB", "time": "20us"},
         {"bytes": "32MB", "time": "0us"}]
# Of trees they say nothing: as configs/transports/ib.json.
TREE = [{"bytes": "64B", "time": "3us"}, {"bytes": "2KiB", "time": "1.5us"}, {"bytes": "16KiB", "time": "2.7us"},
        {"bytes": "64KiB", "time": "3.9us"}, {"bytes": "128KiB", "time": "11.7us"}, {"bytes": "1MiB", "time": "20us"},
        {"bytes": "8MiB", "time": "42us"}, {"bytes": "1GiB", "time": "0us"}]


def state(row):
    """Of the job's machine, by an all-reduce in one server: 458 GB/s, 425 with slow calls, 45 without NVLink"""
    inside = float(row.get("ar_intranode_GBps") or 458)
    return "well" if inside > 440 else "slow_calls" if inside > 300 else "broken"


def cluster(gpus, row):
    """As the job itself measured its network; where calls were slow, which hides the wire, as other jobs did."""
    result = h100(gpus)
    node = result.setdefault("node", {})
    measured = row.get("allreduce_GBps")
    if state(row) == "slow_calls":
        measured = WELL.get(gpus)
    if gpus > 8 and measured:
        rate = min(50.0, float(measured) / 8)
        node["nic"] = {"bandwidth": f"{rate:.3f}GB/s", "efficiency": 1, "steps": STEPS, "tree_steps": TREE}
    if state(row) == "broken":
        node["intra"] = {"bandwidth_per_gpu": f"{450 * float(row['ar_intranode_GBps']) / 458:.1f}GB/s"}
    return result


def convert(row):
    if row["usable"] not in ("yes", "memory-test"):
        raise LeftOut(f"not usable: {row['usable']}")
    tp, dp, pp, gpus, micro_batch, zero = (
        int(row[key]) for key in ("tp", "dp", "pp", "gpus", "mbs", "zero_stage"))
    size, ran = row["model_params_b"], row["outcome"] == "ok"
    model = {key: int(row[key]) for key in ("layers", "hidden", "heads", "vocab")}
    model["ffn"] = int(row["ffn"] or FFN[size])
    model["kv_heads"] = int(float(row["kv_heads"] or row["heads"]))
    tied = row["tied_embeddings"] == "True" if row["tied_embeddings"] else size in TIED
    pipeline = {"schedule": "1f1b", "overlap_p2p": False}
    if pp > 1:
        pipeline["layer_split"] = stage_layers(model, pp)
    scenario = {
        "model": llama(model, tied_embeddings=tied), "cluster": cluster(gpus, row),
        "training": {"global_batch": int(row["gbs"]), "micro_batch": micro_batch, "sequence_length": int(row["seq"]),
                     "precision": precision("bf16", "fp32"), "optimizer": {"type": "adamw"}, "recompute": "none"},
        "parallelism": {"tp": tp, "pp": pp, "dp": dp, "sequence_parallel": tp > 1, "pipeline": pipeline,
                        "data_parallel": {"kind": "zero1" if zero and dp > 1 else "allreduce"}}}
    if state(row) == "slow_calls":
        scenario["training"]["collective_call"] = {"per_rank": "0.29ms"}
    reserved = float(row["mem_reserved_GB"]) if ran and row["mem_reserved_GB"] else None
    return record(row["id"], scenario, float(row["iteration_time_s"]) if ran else None,
                  (reserved, "reserved", 0) if reserved else None, f"{size}B on {gpus} GPUs, batch {row['gbs']}", ran)
