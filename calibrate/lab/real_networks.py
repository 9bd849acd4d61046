"""What the real ranks train: an MLP, ResNet-18 and a GPT, each as a list of layers that stages can share out."""

import math

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional


class Sum(torch.autograd.Function):
    """All-reduce in the forward pass, nothing in the backward pass: behind a product shared by its inputs."""

    @staticmethod
    def forward(_, value):
        value = value.clone()
        dist.all_reduce(value)
        return value

    @staticmethod
    def backward(_, gradient):
        return gradient


class SumGradient(torch.autograd.Function):
    """Nothing in the forward pass, all-reduce in the backward pass: before a product shared by its outputs."""

    @staticmethod
    def forward(_, value):
        return value.view_as(value)

    @staticmethod
    def backward(_, gradient):
        gradient = gradient.contiguous().clone()
        dist.all_reduce(gradient)
        return gradient


class Mlp:
    """Linear layers and ReLUs; the last gives classes."""

    widths = (512,) * 9 + (64,)

    def layers(self):
        inner = [nn.Sequential(nn.Linear(a, b), nn.ReLU()) for a, b in zip(self.widths[:-2], self.widths[1:-1])]
        return inner + [nn.Linear(self.widths[-2], self.widths[-1])]

    def batch(self, samples):
        return torch.randn(samples, self.widths[0]), torch.randint(self.widths[-1], (samples,))

    def loss(self, outputs, targets):
        return functional.cross_entropy(outputs, targets)

    def table(self):
        rows = []
        pairs = list(zip(self.widths, self.widths[1:]))
        for i, (a, b) in enumerate(pairs):
            ops = [{"op": "linear", "in": a, "out": b, "bias": True}]
            ops.append({"op": "loss" if i == len(pairs) - 1 else "relu"})
            rows.append({"name": f"layer {i}", "ops": ops})
        return {"kind": "layers", "input": {"shape": [self.widths[0]]}, "layers": rows}


class _BasicBlock(nn.Module):
    """He et al. 2016."""

    def __init__(self, inputs, width, stride):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.norm2 = nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = None
        if stride > 1 or inputs != width:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x):
        y = self.norm2(self.conv2(self.relu(self.norm1(self.conv1(x)))))
        return self.relu(y + (x if self.shortcut is None else self.shortcut(x)))


class ResNet18:
    side, classes = 64, 1000

    def layers(self):
        found = [nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
                               nn.MaxPool2d(3, 2, 1))]
        inputs = 64
        for width in (64, 128, 256, 512):
            for block in range(2):
                found.append(_BasicBlock(inputs, width, 2 if block == 0 and width > 64 else 1))
                inputs = width
        return found + [nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, self.classes))]

    def batch(self, samples):
        return torch.randn(samples, 3, self.side, self.side), torch.randint(self.classes, (samples,))

    def loss(self, outputs, targets):
        return functional.cross_entropy(outputs, targets)

    def table(self):
        return {"preset": "resnet18", "input": {"image_size": [3, self.side, self.side]}}


class _Block(nn.Module):
    """A decoder layer whose heads and inner columns `parts` ranks share."""

    def __init__(self, hidden, heads, length, parts):
        super().__init__()
        self.heads, self.size, self.parts = heads // parts, hidden // heads, parts
        own = hidden // parts
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.proj = nn.Linear(hidden, 3 * own), nn.Linear(own, hidden)
        self.fc1, self.fc2 = nn.Linear(hidden, 4 * own), nn.Linear(4 * own, hidden)
        self.future = torch.ones(length, length, dtype=torch.bool).triu(1)  # DDP of PyTorch 1.13 sends no such buffers
        self.register_buffer("hidden_score", torch.tensor(float("-inf")), persistent=False)

    def attention(self, x):
        batch, length, _ = x.shape
        q, k, v = (part.view(batch, length, self.heads, self.size).transpose(1, 2)
                   for part in self.qkv(x).split(self.heads * self.size, dim=2))
        scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(self.size))
        scores = torch.where(self.future, self.hidden_score, scores)
        y = functional.softmax(scores, dim=-1) @ v
        return self.proj(y.transpose(1, 2).reshape(batch, length, self.heads * self.size))

    def forward(self, x):
        shared = self.parts > 1
        y = self.norm1(x)
        y = self.attention(SumGradient.apply(y) if shared else y)
        x = x + (Sum.apply(y) if shared else y)
        y = self.norm2(x)
        y = self.fc2(functional.gelu(self.fc1(SumGradient.apply(y) if shared else y)))
        return x + (Sum.apply(y) if shared else y)


class _Embedding(nn.Module):
    """Tokens and positions; of several ranks each has a part of the vocabulary."""

    def __init__(self, vocabulary, hidden, length, part, parts):
        super().__init__()
        self.first, self.size, self.parts = part * vocabulary // parts, vocabulary // parts, parts
        self.tokens, self.positions = nn.Embedding(self.size, hidden), nn.Embedding(length, hidden)
        self.register_buffer("range", torch.arange(length), persistent=False)

    def forward(self, tokens):
        if self.parts == 1:
            return self.tokens(tokens) + self.positions(self.range)
        local = tokens - self.first
        outside = (local < 0) | (local >= self.size)
        found = self.tokens(local.masked_fill(outside, 0)).masked_fill(outside.unsqueeze(-1), 0.0)
        return Sum.apply(found) + self.positions(self.range)


class _Head(nn.Module):
    def __init__(self, vocabulary, hidden, parts):
        super().__init__()
        self.norm, self.product = nn.LayerNorm(hidden), nn.Linear(hidden, vocabulary // parts, bias=False)
        self.parts = parts

    def forward(self, x):
        x = self.norm(x)
        return self.product(SumGradient.apply(x) if self.parts > 1 else x)


class _SharedCrossEntropy(torch.autograd.Function):
    """Of logits whose vocabulary ranks share: three all-reduces of a number for each token (Megatron-LM)."""

    @staticmethod
    def forward(ctx, logits, targets, first):
        highest = logits.max(-1).values
        dist.all_reduce(highest, op=dist.ReduceOp.MAX)
        logits = logits - highest.unsqueeze(-1)
        local = targets - first
        outside = (local < 0) | (local >= logits.shape[-1])
        local = local.masked_fill(outside, 0)
        predicted = logits.gather(-1, local.unsqueeze(-1)).squeeze(-1).masked_fill(outside, 0.0)
        dist.all_reduce(predicted)
        exponentials = logits.exp()
        total = exponentials.sum(-1)
        dist.all_reduce(total)
        ctx.save_for_backward(exponentials / total.unsqueeze(-1), local, outside)
        return (total.log() - predicted).mean()

    @staticmethod
    def backward(ctx, gradient):
        shares, local, outside = ctx.saved_tensors
        shares = shares.clone()
        own = (~outside).to(shares.dtype)
        shares.scatter_add_(-1, local.unsqueeze(-1), -own.unsqueeze(-1))
        return shares * (gradient / local.numel()), None, None


class Gpt:
    depth, hidden, heads, length, vocabulary = 4, 256, 8, 128, 2048

    def __init__(self, part=0, parts=1):
        self.part, self.parts = part, parts

    def layers(self):
        blocks = [_Block(self.hidden, self.heads, self.length, self.parts) for _ in range(self.depth)]
        return [_Embedding(self.vocabulary, self.hidden, self.length, self.part, self.parts), *blocks,
                _Head(self.vocabulary, self.hidden, self.parts)]

    def batch(self, samples):
        tokens = torch.randint(self.vocabulary, (samples, self.length + 1))
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    def loss(self, outputs, targets):
        rows, targets = outputs.reshape(-1, outputs.shape[-1]), targets.reshape(-1)
        if self.parts == 1:
            return functional.cross_entropy(rows, targets)
        return _SharedCrossEntropy.apply(rows, targets, self.part * self.vocabulary // self.parts)

    def table(self):
        return {"kind": "transformer", "layers": self.depth, "hidden": self.hidden, "heads": self.heads,
                "vocab": self.vocabulary, "dropout": False, "tied_embeddings": False, "max_positions": self.length}


NETWORKS = {"mlp": Mlp, "resnet18": ResNet18, "gpt": Gpt}
