"""SSD300: backbone and heads of torchvision's detector. What turns images into a batch, anchors, and the matching of
boxes are left out: they run on the host or depend on the labels."""

from torch import nn


class Ssd300(nn.Module):
    def __init__(self):
        super().__init__()
        from torchvision.models.detection import ssd300_vgg16

        whole = ssd300_vgg16(weights=None, weights_backbone=None)
        self.backbone, self.head = whole.backbone, whole.head

    def forward(self, images):
        found = self.head(list(self.backbone(images).values()))
        return found["bbox_regression"], found["cls_logits"]
