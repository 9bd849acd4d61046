"""The networks that measure.py trains, and their optimizer. Imports PyTorch: for the processes that run a case."""

import contextlib
import inspect
import math

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

try:
    from torch.nn.attention import SDPBackend, sdpa_kernel
    ORDERS_BACKENDS = "set_priority" in inspect.signature(sdpa_kernel).parameters
except ImportError:  # before PyTorch 2.3
    ORDERS_BACKENDS = False

RMS_NORM = getattr(functional, "rms_norm", None)  # from PyTorch 2.4 on


def built_on(device):
    """Where modules made inside lie from the start: initialising billions of weights on the host takes longer than
    measuring a step. PyTorch before 2.0 has no such context; there they lie on the host."""
    there = torch.device(device)
    return there if hasattr(there, "__enter__") else contextlib.nullcontext()


def unfused_attention(q, k, v, future, hidden_score):
    """[batch, heads, tokens, width]; `future` is true where a key lies behind its query."""
    scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(q.shape[-1]))
    scores = torch.where(future, hidden_score, scores)
    return functional.softmax(scores, dim=-1) @ v


def build_gpt(case):
    hidden, heads, length = case["hidden"], case["heads"], case["sequence"]
    unfused, recompute = case["technique"] == "eager", case["recompute"] == "full"

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
            self.qkv, self.proj = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
            self.fc1, self.fc2 = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

        def attention(self, x, future, hidden_score):
            batch = x.shape[0]
            q, k, v = (part.view(batch, length, heads, hidden // heads).transpose(1, 2)
                       for part in self.qkv(x).split(hidden, dim=2))
            if unfused:
                y = unfused_attention(q, k, v, future, hidden_score)
            else:
                y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.proj(y.transpose(1, 2).reshape(batch, length, hidden))

        def forward(self, x, future, hidden_score):
            x = x + self.attention(self.norm1(x), future, hidden_score)
            return x + self.fc2(functional.gelu(self.fc1(self.norm2(x))))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(case["vocabulary"], hidden)
            self.positions = nn.Embedding(length, hidden)
            self.blocks = nn.ModuleList(Block() for _ in range(case["layers"]))
            self.norm = nn.LayerNorm(hidden)
            self.register_buffer("range", torch.arange(length), persistent=False)
            self.register_buffer("future", torch.ones(length, length, dtype=torch.bool).triu(1), persistent=False)
            self.register_buffer("hidden_score", torch.tensor(float("-inf")), persistent=False)
            for parameter in self.parameters():
                if parameter.dim() > 1:
                    nn.init.normal_(parameter, std=0.02)

        def forward(self, inputs, targets):
            x = self.tokens(inputs) + self.positions(self.range)
            for block in self.blocks:
                if recompute:
                    x = checkpoint(block, x, self.future, self.hidden_score, use_reentrant=False)
                else:
                    x = block(x, self.future, self.hidden_score)
            return functional.cross_entropy(
                functional.linear(self.norm(x), self.tokens.weight).float().view(-1, case["vocabulary"]),
                targets.view(-1))

    return Gpt()


if ORDERS_BACKENDS:
    def causal_attention(q, k, v):
        """cuDNN's kernel where there is one, as torchtitan asks for it; the last two are for what is not of 16 bits."""
        with sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION,
                          SDPBackend.MATH], set_priority=True):
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return y
else:
    def causal_attention(q, k, v):
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight, self.shape = nn.Parameter(torch.ones(width)), (width,)

    def forward(self, x):
        if RMS_NORM is not None:
            return RMS_NORM(x, self.shape, self.weight, 1e-5)
        y = x.float()
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5)).type_as(x) * self.weight


def rotations(width, length):
    """A complex number of length 1 for each position and pair of a head's elements (Su et al. 2021), as in Llama 3."""
    frequencies = 1.0 / (500000.0 ** (torch.arange(0, width, 2).float() / width))
    angles = torch.outer(torch.arange(length).float(), frequencies)
    return torch.polar(torch.ones_like(angles), angles)


def rotated(x, turns):
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns[:, None, :]).flatten(3).type_as(x)


def repeated(x, times):
    """Heads of keys or values, each `times` times, for the queries of its group."""
    if times == 1:
        return x
    batch, length, heads, width = x.shape
    return x[:, :, :, None, :].expand(batch, length, heads, times, width).reshape(batch, length, heads * times, width)


def token_loss(logits, targets):
    return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(0, 1))


def build_llama(case):
    """As torchtitan writes Llama 3 (pytorch/torchtitan, torchtitan/models/llama3)."""
    hidden, heads, kv_heads, length = case["hidden"], case["heads"], case["kv_heads"], case["sequence"]
    width = hidden // heads
    unfused, recompute = case["technique"] == "eager", case["recompute"] == "full"

    def linear(inputs, outputs):
        return nn.Linear(inputs, outputs, bias=False)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.wq, self.wo = linear(hidden, hidden), linear(hidden, hidden)
            self.wk, self.wv = linear(hidden, kv_heads * width), linear(hidden, kv_heads * width)
            self.w1, self.w2, self.w3 = (linear(hidden, case["ffn"]), linear(case["ffn"], hidden),
                                         linear(hidden, case["ffn"]))
            self.norm1, self.norm2 = RmsNorm(hidden), RmsNorm(hidden)

        def attention(self, x, turns, future, hidden_score):
            batch = x.shape[0]
            q = rotated(self.wq(x).view(batch, length, heads, width), turns)
            k = rotated(self.wk(x).view(batch, length, kv_heads, width), turns)
            v = self.wv(x).view(batch, length, kv_heads, width)
            k, v = repeated(k, heads // kv_heads), repeated(v, heads // kv_heads)
            q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
            y = unfused_attention(q, k, v, future, hidden_score) if unfused else causal_attention(q, k, v)
            return self.wo(y.transpose(1, 2).contiguous().view(batch, length, hidden))

        def forward(self, x, turns, future, hidden_score):
            x = x + self.attention(self.norm1(x), turns, future, hidden_score)
            y = self.norm2(x)
            return x + self.w2(functional.silu(self.w1(y)) * self.w3(y))

    class Llama(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(case["vocabulary"], hidden)
            self.blocks = nn.ModuleList(Block() for _ in range(case["layers"]))
            self.norm, self.output = RmsNorm(hidden), linear(hidden, case["vocabulary"])
            self.loss = token_loss
            # No buffers: a module that is cast casts complex ones, too. A mask of long sequences is large.
            self.turns = rotations(width, length)
            self.future = torch.ones(length, length, dtype=torch.bool).triu(1) if unfused else None
            self.hidden_score = torch.tensor(float("-inf")) if unfused else None
            for parameter in self.parameters():
                if parameter.dim() > 1:
                    nn.init.normal_(parameter, std=0.02)

        def compile_parts(self):
            """Each block and the loss, as torchtitan does."""
            for block in self.blocks:
                block.compile()
            self.loss = torch.compile(token_loss)

        def forward(self, inputs, targets):
            x = self.tokens(inputs)
            for block in self.blocks:
                if recompute:
                    x = checkpoint(block, x, self.turns, self.future, self.hidden_score, use_reentrant=False)
                else:
                    x = block(x, self.turns, self.future, self.hidden_score)
            return self.loss(self.output(self.norm(x)), targets)

    return Llama()


def build_resnet50(case):
    """He et al. 2016, version 1.5: the stride of a block is in its 3x3 convolution."""
    def normalized(inputs, outputs, kernel, stride=1):
        return nn.Sequential(nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False),
                             nn.BatchNorm2d(outputs))

    class Bottleneck(nn.Module):
        def __init__(self, inputs, width, stride):
            super().__init__()
            self.a, self.b = normalized(inputs, width, 1), normalized(width, width, 3, stride)
            self.c = normalized(width, 4 * width, 1)
            self.relu = nn.ReLU(inplace=True)
            self.projection = (normalized(inputs, 4 * width, 1, stride) if stride > 1 or inputs != 4 * width else None)

        def forward(self, x):
            y = self.c(self.relu(self.b(self.relu(self.a(x)))))
            return self.relu(y + (x if self.projection is None else self.projection(x)))

    class ResNet50(nn.Module):
        def __init__(self):
            super().__init__()
            layers = [normalized(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
            inputs = 64
            for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
                for block in range(blocks):
                    layers.append(Bottleneck(inputs, width, 2 if block == 0 and width > 64 else 1))
                    inputs = 4 * width
            self.features = nn.Sequential(*layers)
            self.pool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(inputs, case["classes"])

        def forward(self, images, labels):
            x = self.pool(self.features(images)).flatten(1)
            return functional.cross_entropy(self.fc(x).float(), labels)

    return ResNet50()


class MasterOptimizer:
    """A fused PyTorch optimizer on fp32 master copies of 16-bit weights; fp32 weights are their own master."""

    def __init__(self, weights, adam):
        self.weights = list(weights)
        self.half = [w for w in self.weights if w.dtype != torch.float32]
        self.masters = [w.detach().clone().float() for w in self.half]
        trained = self.masters + [w for w in self.weights if w.dtype == torch.float32]
        on_gpu = self.weights[0].is_cuda
        self.name = "adamw" if adam else "sgd momentum"
        make = ((lambda **how: torch.optim.AdamW(trained, lr=1e-4, **how)) if adam else
                (lambda **how: torch.optim.SGD(trained, lr=1e-3, momentum=0.9, **how)))
        try:
            self.inner = make(fused=True) if on_gpu else make()
            self.implementation = "fused" if on_gpu else "default"
        except (TypeError, RuntimeError):  # SGD has no fused form before PyTorch 2.3
            self.inner, self.implementation = make(foreach=True), "foreach"

    def step(self):
        with torch.no_grad():
            if self.half:
                gradients = [torch.empty_like(master) for master in self.masters]
                torch._foreach_copy_(gradients, [w.grad for w in self.half])
                for master, gradient in zip(self.masters, gradients):
                    master.grad = gradient
                del gradients
            self.inner.step()
            if self.half:
                for master in self.masters:
                    master.grad = None
                torch._foreach_copy_(self.half, self.masters)
        for weight in self.weights:
            weight.grad = None
