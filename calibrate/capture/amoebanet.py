"""AmoebaNet-D (L, D): Real et al., Regularized Evolution for Image Classifier Architecture Search, AAAI 2019, whose
figure has its two cells, in the sizes of Huang et al., GPipe, NeurIPS 2019: L normal cells in three groups, D filters.

Every cell reads the outputs of the two cells before it, brought to its own channels: state 0 is of the last one, state
1 of the one before. Each further state is the sum of two operations on earlier states; some states, joined, are the
output. Convolutions are a ReLU, the convolution and a batch norm; those wider than 1x1 run in a quarter of the
channels, between two of 1x1. The normal cell hands on state 0 too, as the authors' network does and the paper's figure
does not.

For ImageNet the first group begins with a convolution and two reduction cells, each other group with one. So (18, 256)
are 24 modules: stem, 2 reductions, 6 normal, a reduction, 6 normal, a reduction, 6 normal, classifier. Published are
82, 318 and 542 million parameters of (18, 208), (18, 416) and (18, 544) (GPipe, table 1); these are 81.5, 319.0 and
542.7."""

import torch
from torch import nn


def convolution(channels, out, kernel=1, stride=1):
    height, width = kernel if isinstance(kernel, tuple) else (kernel, kernel)
    # A long window moves along its own axis only.
    steps = (stride if height > 1 else 1, stride if width > 1 else 1) if max(height, width) > 1 else (stride, stride)
    return [nn.ReLU(), nn.Conv2d(channels, out, (height, width), steps, (height // 2, width // 2), bias=False),
            nn.BatchNorm2d(out)]


def bottleneck(channels, stride, *kernels):
    narrow = channels // 4
    rows = convolution(channels, narrow)
    for kernel in kernels:
        rows += convolution(narrow, narrow, kernel, stride)
    return nn.Sequential(*rows, *convolution(narrow, channels))


class Halve(nn.Module):
    """Half of the channels from the even pixels, half from the odd ones."""

    def __init__(self, channels, out):
        super().__init__()
        self.relu = nn.ReLU()
        self.even = nn.Conv2d(channels, out // 2, 1, 2, bias=False)
        self.shift = nn.ZeroPad2d((-1, 1, -1, 1))
        self.odd = nn.Conv2d(channels, out // 2, 1, 2, bias=False)
        self.norm = nn.BatchNorm2d(out)

    def forward(self, x):
        x = self.relu(x)
        return self.norm(torch.cat([self.even(x), self.odd(self.shift(x))], dim=1))


OPERATIONS = {
    "none": lambda channels, stride: nn.Identity(),
    "1x1": lambda channels, stride: nn.Sequential(*convolution(channels, channels, 1, stride)),
    "3x3": lambda channels, stride: bottleneck(channels, stride, 3),
    "1x7 7x1": lambda channels, stride: bottleneck(channels, stride, (1, 7), (7, 1)),
    "average 3x3": lambda channels, stride: nn.AvgPool2d(3, stride, padding=1, count_include_pad=False),
    "max 2x2": lambda channels, stride: nn.MaxPool2d(2, stride),
    "max 3x3": lambda channels, stride: nn.MaxPool2d(3, stride, padding=1),
}

# A line for each further state: two operations and the states that they read; then what is joined.
NORMAL = [("1x1", 1, "max 3x3", 1), ("none", 1, "1x7 7x1", 0), ("1x1", 0, "1x7 7x1", 0), ("max 3x3", 2, "none", 2),
          ("average 3x3", 1, "1x1", 5)]
NORMAL_OUTPUT = (0, 3, 4, 6)
REDUCTION = [("max 2x2", 0, "max 3x3", 0), ("none", 2, "3x3", 1), ("1x7 7x1", 2, "max 3x3", 2),
             ("none", 3, "max 2x2", 1), ("average 3x3", 2, "1x1", 3)]
REDUCTION_OUTPUT = (4, 5, 6)


class Cell(nn.Module):
    def __init__(self, last, before, channels, reduction, halve):
        super().__init__()
        self.last = nn.Sequential(*convolution(last, channels))
        if halve:
            self.before = Halve(before, channels)
        elif before != channels:
            self.before = nn.Sequential(*convolution(before, channels))
        else:
            self.before = nn.Identity()
        self.sums = REDUCTION if reduction else NORMAL
        self.output = REDUCTION_OUTPUT if reduction else NORMAL_OUTPUT
        self.operations = nn.ModuleList(OPERATIONS[name](channels, 2 if reduction and state < 2 else 1)
                                        for row in self.sums for name, state in (row[:2], row[2:]))

    def forward(self, last, before):
        states = [self.last(last), self.before(before)]
        for number, (_, left, _, right) in enumerate(self.sums):
            states.append(self.operations[2 * number](states[left]) + self.operations[2 * number + 1](states[right]))
        return torch.cat([states[state] for state in self.output], dim=1)


class Stem(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(3, channels, 3, 2, 1, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        return self.norm(self.conv(x))


class Classifier(nn.Module):
    def __init__(self, channels, classes):
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.linear = nn.Linear(channels, classes)

    def forward(self, x):
        return self.linear(torch.flatten(self.pool(x), 1))


class AmoebaNetD(nn.Module):
    def __init__(self, cells, filters, classes=1000):
        super().__init__()
        channels = filters // 4
        self.stem = Stem(channels)
        last = before = channels
        halve = False
        self.cells = nn.ModuleList()
        group = [False] * (cells // 3)
        for reduction in [True, True, *group, True, *group, True, *group]:
            channels *= 2 if reduction else 1
            self.cells.append(Cell(last, before, channels, reduction, halve))
            last, before, halve = channels * len(self.cells[-1].output), last, reduction
        self.classifier = Classifier(last, classes)

    def forward(self, x):
        last = before = self.stem(x)
        for cell in self.cells:
            last, before = cell(last, before), last
        return self.classifier(last)


def amoebanet_d_18_256():
    return AmoebaNetD(18, 256)
