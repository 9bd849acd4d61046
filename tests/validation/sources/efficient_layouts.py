"""Efficient Parallelization Layouts: LLaMA 13B to 65B on 32 to 256 A100, 1F1B, ZeRO-1.

The kernel "torch" is eager PyTorch, "flash_attention..." that with fused attention, "fused" that with Megatron's
softmax, all with norms by operators but with an RMS kernel, taken to keep their input beside an fp32 copy, as T5's do
(the later trainer's keep no copy, src/scaling/core/nn/norm/rms_norm.py; as Llama's of transformers, without the input,
four more runs that ended out of memory would be said to fit). Their trainer is none that configs/software has: it is
taken for Aleph Alpha's later published one (Aleph-Alpha/scaling@01b9d21d), whose element-wise work is PyTorch's
(silu(x) * gate in src/scaling/core/nn/mlp.py), whose tensor-parallel products are autograd functions that wait for
their collective and keep what was gathered (linear/column_parallel_linear.py, utils.py), gate and up projection each
for itself (mlp.py), whose ranks all gather the logits (lm_head.py), and whose gradients are reduced in
Optimizer.step, after the last micro-batch (optimizer/optimizer.py). Its servers differ as those of all software.
PyTorch's autograd sums gradients. Layouts of one sheet are alternatives.

The sheets do not print dropout. Their trainer's examples/transformer_example/config.yml, which has these networks'
words (128,000) and operators, drops a tenth after the embedding, both blocks and of attention's weights; so do these
steps: without it those of the kernel "torch" on 8,192 tokens are 12 to 14 % too fast, with it within 2 %, and runs of
"torch" and "fused" without recomputation that ended out of memory would have a quarter of it to spare. Blocks of
collectives come back late, as nanotron's do (configs/software/nanotron.json), and all of them have to fit.
"""

from common import LeftOut, a100, even, llama, metric, precision, record

FILE = "efficient_layouts.json"
LATE = {"launches_ahead": 330, "late_share": 1}
SOURCE = "Hagemann et al. 2023, arXiv:2311.05610 (CC BY-NC-SA)"


def attention(kernel):
    """The sheets' "flash_attention1.0.8" and "flash_attention2"; "torch" and "fused" are products and a softmax"""
    if not kernel.startswith("flash"):
        return "unfused"
    return "fa1" if "1.0" in kernel else "fa2"


def convert(row):
    model, said, batch, kernel = row["model"], row["parallelism"], row["batch"], row["kernel"]
    outcomes = [str(one["value"]) for one in row["metrics"] if one["name"] == "outcome"]
    if outcomes and "OOM" not in outcomes[0]:
        raise LeftOut(f"no verdict: {outcomes[0]}")
    sequence_parallel = bool(said.get("sp")) and said["tp"] > 1
    pipeline = {"schedule": "1f1b", "overlap_p2p": False}
    if model["layers"] % said["pp"]:
        pipeline["layer_split"] = even(model["layers"], said["pp"])
    scenario = {
        "model": llama(model, dropout=True), "cluster": a100(row["hardware"]["num_gpus"]),
        "training": {"global_batch": batch["gbs"], "micro_batch": batch["mbs"], "sequence_length": model["seq"],
                     "precision": precision("bf16"), "optimizer": {"type": "adamw"},
                     "recompute": "none" if row["recompute"] == "none" else "full",
                     "gradient_accumulation": "autograd", "fused_attention": attention(kernel),
                     "execution": "eager", "gate_projection": "separate",
                     "memory": {"kept_outputs": 2, **(LATE if said["tp"] > 1 else {})},
                     **({"softmax": "kernel"} if kernel.startswith("fused") else {}),
                     **({} if "RMS" in kernel else {"norm": "operators", "norm_scales": "input"})},
        "parallelism": {"tp": said["tp"], "pp": said["pp"], "dp": said["dp"], "pipeline": pipeline,
                        "sequence_parallel": sequence_parallel,
                        "tensor_parallel": {"overlap": "none", "keep_gathered_inputs": sequence_parallel,
                                            **({"gather_logits": True, "gather_per_projection": True}
                                               if said["tp"] > 1 else {})},
                        "data_parallel": {"kind": "zero1" if said["dp"] > 1 else "allreduce",
                                          "overlap_backward": False}},
        "perturbations": {"compute_jitter": {"cv": 0.0115}}}
    sheet = row["source"]["object"].split("/")[-1].split(" trial")[0]
    return record(row["id"], scenario, metric(row, "iteration_time"), group=sheet, fits=not outcomes)
