"""The networks of configs/models that were captured, and how each is made. Imports PyTorch only when one is made."""

from dataclasses import dataclass
from typing import Callable


@dataclass(frozen=True)
class Captured:
    build: Callable
    input: tuple
    description: str
    source: str
    torchvision: str = ""  # the function it is made by, without options
    layers: tuple = ()  # modules that are one layer each; none: as docs/layers.md finds them


def build_torchvision(name):
    import inspect

    import torchvision

    make = getattr(torchvision.models, name)
    # Random weights for two networks take minutes otherwise; no weight is kept here.
    options = {"init_weights": False} if name in ("inception_v3", "googlenet") else {}
    if "aux_logits" in inspect.signature(make).parameters:
        options["aux_logits"] = True
    return make(**options)


def build_ssd300():
    from ssd import Ssd300

    return Ssd300()


def build_unet():
    from unet import UNet

    return UNet()


def build_unet_resnet34():
    from unet import ResNet34UNet

    return ResNet34UNet()


def build_cifar_resnet18():
    from cifar import cifar_resnet18

    return cifar_resnet18()


def build_amoebanet_d():
    from amoebanet import amoebanet_d_18_256

    return amoebanet_d_18_256()


IMAGE = (3, 224, 224)
AMOEBANET_D_CELLS = 2 + 18 + 2  # two reductions, then 18 normal cells in three groups, with a reduction between two


def of_torchvision(name, description, paper, size=IMAGE):
    return Captured(lambda: build_torchvision(name), size, description, f"torchvision.models.{name}; {paper}", name)


NETWORKS = {
    "alexnet": of_torchvision("alexnet", "AlexNet of one tower", "Krizhevsky, One weird trick, 2014"),
    "vgg11": of_torchvision("vgg11", "VGG-11, configuration A", "Simonyan & Zisserman, ICLR 2015"),
    "vgg16": of_torchvision("vgg16", "VGG-16, configuration D", "Simonyan & Zisserman, ICLR 2015"),
    "vgg19": of_torchvision("vgg19", "VGG-19, configuration E", "Simonyan & Zisserman, ICLR 2015"),
    "resnet18": of_torchvision("resnet18", "ResNet-18", "He et al., CVPR 2016"),
    "resnet34": of_torchvision("resnet34", "ResNet-34", "He et al., CVPR 2016"),
    "resnet50": of_torchvision("resnet50", "ResNet-50 v1.5, the stride in the 3x3 convolution", "He et al., CVPR 2016"),
    "resnet101": of_torchvision("resnet101", "ResNet-101 v1.5", "He et al., CVPR 2016"),
    "resnet152": of_torchvision("resnet152", "ResNet-152 v1.5", "He et al., CVPR 2016"),
    "cifar-resnet18": Captured(build_cifar_resnet18, (3, 32, 32),
                               "ResNet-18 for CIFAR-10: a stem of 3x3, no max pool, 10 classes",
                               "calibrate/capture/cifar.py; He et al., CVPR 2016"),
    "resnext50-32x4d": of_torchvision("resnext50_32x4d", "ResNeXt-50 32x4d", "Xie et al., CVPR 2017"),
    "inception-v3": of_torchvision("inception_v3", "Inception v3 with its auxiliary classifier, as it is trained",
                                   "Szegedy et al., CVPR 2016", (3, 299, 299)),
    "googlenet": of_torchvision("googlenet", "GoogLeNet with batch norms and auxiliary classifiers, as it is trained",
                                "Szegedy et al., CVPR 2015"),
    "densenet121": of_torchvision("densenet121", "DenseNet-121, growth 32", "Huang et al., CVPR 2017"),
    "mobilenet-v3-large": of_torchvision("mobilenet_v3_large", "MobileNetV3-Large", "Howard et al., ICCV 2019"),
    "mobilenet-v3-small": of_torchvision("mobilenet_v3_small", "MobileNetV3-Small", "Howard et al., ICCV 2019"),
    "efficientnet-b0": of_torchvision("efficientnet_b0", "EfficientNet-B0", "Tan & Le, ICML 2019"),
    "efficientnet-b4": of_torchvision("efficientnet_b4", "EfficientNet-B4, 380 x 380 pixels", "Tan & Le, ICML 2019",
                                      (3, 380, 380)),
    "swin-t": of_torchvision("swin_t", "Swin Transformer, tiny", "Liu et al., ICCV 2021"),
    "ssd300-vgg16": Captured(build_ssd300, (3, 300, 300),
                             "SSD300 with VGG-16, 91 classes of COCO, without the matching of boxes",
                             "torchvision.models.detection.ssd300_vgg16; Liu et al., ECCV 2016"),
    "unet": Captured(build_unet, (1, 512, 512), "U-Net with padded convolutions, 31 million parameters, 2 classes",
                     "calibrate/capture/unet.py; Ronneberger et al., MICCAI 2015"),
    "unet-resnet34": Captured(build_unet_resnet34, (3, 256, 256), "U-Net whose encoder is ResNet-34, 1 class",
                              "calibrate/capture/unet.py; Ronneberger et al., MICCAI 2015; He et al., CVPR 2016"),
    "amoebanet-d-18-256": Captured(build_amoebanet_d, IMAGE,
                                   "AmoebaNet-D of 18 normal cells and 256 filters, a cell a layer",
                                   "calibrate/capture/amoebanet.py; Real et al., AAAI 2019; Huang et al., NeurIPS 2019",
                                   layers=("stem", *(f"cells.{n}" for n in range(AMOEBANET_D_CELLS)), "classifier")),
}
