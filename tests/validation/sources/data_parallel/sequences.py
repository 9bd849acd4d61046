"""What runs of NVIDIA's scripts for sequences are: Transformer-XL as Lambda has it, and BART, both on PyTorch.

Facts are those of NVIDIA/DeepLearningExamples (DLE), PyTorch/...; docs/layers.md has the format of the tables.

- Transformer-XL (LanguageModeling/Transformer-XL/pytorch): a sample is tgt_len tokens. Lambda's scripts (lambdal/
  deeplearning-benchmark, pytorch/scripts/config_v1 and config_v2) say neither --adaptive (logits of all words) nor
  --multi_gpu, without which train.py exchanges no gradients: each GPU trains alone. Mixed precision is Apex's O2
  (parse_args); the loss is read after each backward pass (train_iteration), before gradients are clipped. NVIDIA's own
  rows have an adaptive softmax: how many words fall into each of its clusters is not stated.
- BART (LanguageModeling/BART): encoder and decoder see as many tokens (DataCollatorForBART pads inputs to the labels'
  length). A step has 64 000 sequences of 128 tokens, 30 720 of 512, whatever the number of GPUs: run_pretraining.sh has
  200 x 8 x 40 and 32 x 8 x 120 by default, and rates of 160 and 320 GPUs are those numbers over 2.06, 1.04, 5.16 and
  2.64 s. One GPU takes as many micro-batches as each of eight.
"""

from common import LeftOut

from data_parallel.replicas import LAMB, scenario

# lamb_kernel of lamb.py, joined by TorchScript into six launches of an array: moments and update (7 accesses), two
# norms, two groups of single numbers, the weight (3). With Apex's copies as in APEX_LAMB.
JIT_LAMB = {"type": "lamb", "accesses": 12, "launches": 1.6, "waits": True}
APEX_JIT_LAMB = {"type": "lamb", "accesses": 15, "launches": 1.7, "waits": True}
# torch.optim.Adam: mul, add, mul, addcmul, sqrt, div, add, addcdiv, of .27 of a launch each.
PLAIN_ADAM = {"type": "adam", "accesses": 20, "launches": 2.2, "waits": True}
APEX_PLAIN_ADAM = {"type": "adam", "accesses": 23, "launches": 2.3, "waits": True}
# Of Lambda's two: preset, tokens of a sample, optimizer and that under Apex (--optim jitlamb, adam).
TRANSFORMER_XL = {"transformerxlbase": ("transformer-xl-base-dense", 192, JIT_LAMB, APEX_JIT_LAMB),
                  "transformerxllarge": ("transformer-xl-large-dense", 256, PLAIN_ADAM, APEX_PLAIN_ADAM)}
SEQUENCES_OF_A_STEP = {128: 64000, 512: 30720}


def transformer_xl(name, machine, of_gpu, kind):
    preset, _, plain, apex = TRANSFORMER_XL[name]
    return scenario({"preset": preset}, machine, "pytorch-ddp-2020", of_gpu, "apex" if kind == "amp" else kind,
                    apex if kind == "amp" else plain, gradient_clipping=True)


def bart_row(row, kind, machine, title):
    if "Pre-training" not in title:
        raise LeftOut("length of sequences not stated")
    length, gpus = int(row["batch"]["Sequence Length"]), machine["nodes"] * machine["node"]["gpus"]
    tf32, bf16 = (int(one) for one in row["batch"]["Batch size / GPU (TF32, BF16)"].split(","))
    of_gpu = bf16 if kind == "bf16" else tf32
    accumulated = SEQUENCES_OF_A_STEP[length] // (of_gpu * max(gpus, 8))
    described = scenario({"preset": "bart-large"}, machine, "pytorch-ddp", of_gpu, kind, LAMB, accumulated,
                         sequence_length=length, decoder_sequence_length=length, projections="separate")
    if kind == "bf16":  # weights are of 16 bits (BartForConditionalGenerationWrapper), masters the optimizer's
        described["training"]["precision"] = {"compute": "bf16", "gradients": "bf16", "master_weights": "fp32"}
    return described


def left_out(reason):
    def made(_row, _kind, _machine, _title):
        raise LeftOut(reason)
    return made


ROWS = {"PyTorch/LanguageModeling/BART": bart_row,
        "PyTorch/LanguageModeling/Transformer-XL": left_out("words of each cluster of an adaptive softmax not stated"),
        "PyTorch/Translation/Transformer": left_out("padding and length of sentences not stated")}
