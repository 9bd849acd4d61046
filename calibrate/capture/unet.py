"""Two networks for segmentation.

UNet: Ronneberger et al., U-Net, MICCAI 2015, figure 1: 64 to 1024 channels by pairs of 3x3 convolutions with biases,
max pools down, 2x2 transposed convolutions up, a 1x1 convolution to the classes, and dropout on the two lowest levels
of the way down. Convolutions are padded, so that nothing is cropped.

ResNet34UNet: the encoder of ResNet-34, five steps of nearest upsampling by 2, the skip of that size joined, and two 3x3
convolutions with batch norms to 256, 128, 64, 32 and 16 channels, as segmentation_models_pytorch's Unet("resnet34")."""

import torch
from torch import nn
from torch.nn import functional


def double_convolution(channels, out):
    return [nn.Conv2d(channels, out, 3, padding=1), nn.ReLU(inplace=True),
            nn.Conv2d(out, out, 3, padding=1), nn.ReLU(inplace=True)]


def normalized_convolution(channels, out):
    return [nn.Conv2d(channels, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU(inplace=True)]


class Down(nn.Module):
    def __init__(self, channels, out, pool, dropout):
        super().__init__()
        self.pool = nn.MaxPool2d(2) if pool else nn.Identity()
        self.convolutions = nn.Sequential(*double_convolution(channels, out))
        self.dropout = nn.Dropout(0.5) if dropout else nn.Identity()

    def forward(self, x):
        return self.dropout(self.convolutions(self.pool(x)))


class Up(nn.Module):
    def __init__(self, channels, out):
        super().__init__()
        self.up = nn.ConvTranspose2d(channels, out, 2, stride=2)
        self.convolutions = nn.Sequential(*double_convolution(2 * out, out))

    def forward(self, x, skip):
        return self.convolutions(torch.cat([skip, self.up(x)], dim=1))


class UNet(nn.Module):
    def __init__(self, channels=1, classes=2, width=64):
        super().__init__()
        widths = [width * 2**level for level in range(5)]
        self.down = nn.ModuleList(Down(before, out, pool=level > 0, dropout=level > 2)
                                  for level, (before, out) in enumerate(zip([channels, *widths], widths)))
        self.up = nn.ModuleList(Up(2 * out, out) for out in reversed(widths[:-1]))
        self.classes = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        skips = []
        for down in self.down:
            x = down(x)
            skips.append(x)
        skips.pop()
        for up in self.up:
            x = up(x, skips.pop())
        return self.classes(x)


class Decoder(nn.Module):
    def __init__(self, channels, skip, out):
        super().__init__()
        self.convolutions = nn.Sequential(*normalized_convolution(channels + skip, out),
                                          *normalized_convolution(out, out))

    def forward(self, x, skip=None):
        x = functional.interpolate(x, scale_factor=2, mode="nearest")
        return self.convolutions(x if skip is None else torch.cat([x, skip], dim=1))


class ResNet34UNet(nn.Module):
    def __init__(self, classes=1):
        super().__init__()
        from torchvision.models import resnet34

        encoder = resnet34()
        self.conv1, self.bn1, self.relu, self.maxpool = encoder.conv1, encoder.bn1, encoder.relu, encoder.maxpool
        self.layer1, self.layer2, self.layer3, self.layer4 = (encoder.layer1, encoder.layer2, encoder.layer3,
                                                              encoder.layer4)
        self.decoder = nn.ModuleList(Decoder(*sizes) for sizes in ((512, 256, 256), (256, 128, 128), (128, 64, 64),
                                                                  (64, 64, 32), (32, 0, 16)))
        self.classes = nn.Conv2d(16, classes, 3, padding=1)

    def forward(self, x):
        stem = self.relu(self.bn1(self.conv1(x)))
        one = self.layer1(self.maxpool(stem))
        two = self.layer2(one)
        three = self.layer3(two)
        x = self.layer4(three)
        for decoder, skip in zip(self.decoder, (three, two, one, stem, None)):
            x = decoder(x, skip)
        return self.classes(x)
