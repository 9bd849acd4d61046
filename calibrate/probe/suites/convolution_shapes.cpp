#include "convolution_shapes.h"

namespace trainyard::probe {

double ConvolutionLayer::flops(int batch) const {
  return 2.0 * batch * in_channels * out_channels * kernel * kernel * out_side() * out_side();
}

// ResNet-50 with the stride in the 3 x 3 layer (version 1.5), VGG-16 and U-Net with padding, so
// that sides are halved exactly. U-Net is that of a 256 x 256 image.
const std::vector<ConvolutionLayer>& convolution_layers() {
  static const std::vector<ConvolutionLayer> layers = {
      {"resnet-50", 64, 64, 56, 3, 1},    {"resnet-50", 256, 512, 28, 1, 1},
      {"vgg-16", 256, 256, 56, 3, 1},     {"resnet-50", 512, 512, 7, 3, 1},
      {"u-net", 128, 128, 128, 3, 1},     {"resnet-50", 128, 128, 28, 3, 1},
      {"resnet-50", 256, 256, 14, 3, 1},  {"resnet-50", 3, 64, 224, 7, 2},
      {"resnet-50", 64, 256, 56, 1, 1},   {"resnet-50", 256, 64, 56, 1, 1},
      {"resnet-50", 1024, 256, 14, 1, 1}, {"resnet-50", 2048, 512, 7, 1, 1},
      {"vgg-16", 64, 64, 224, 3, 1},      {"vgg-16", 512, 512, 14, 3, 1},
      {"u-net", 1024, 512, 32, 3, 1},     {"u-net", 512, 1024, 16, 3, 1},
      {"resnet-50", 64, 64, 56, 1, 1},    {"resnet-50", 256, 128, 56, 1, 1},
      {"resnet-50", 128, 128, 56, 3, 2},  {"resnet-50", 128, 512, 28, 1, 1},
      {"resnet-50", 256, 512, 56, 1, 2},  {"resnet-50", 512, 128, 28, 1, 1},
      {"resnet-50", 512, 256, 28, 1, 1},  {"resnet-50", 256, 256, 28, 3, 2},
      {"resnet-50", 256, 1024, 14, 1, 1}, {"resnet-50", 512, 1024, 28, 1, 2},
      {"resnet-50", 1024, 512, 14, 1, 1}, {"resnet-50", 512, 512, 14, 3, 2},
      {"resnet-50", 512, 2048, 7, 1, 1},  {"resnet-50", 1024, 2048, 14, 1, 2},
      {"vgg-16", 3, 64, 224, 3, 1},       {"vgg-16", 64, 128, 112, 3, 1},
      {"vgg-16", 128, 128, 112, 3, 1},    {"vgg-16", 128, 256, 56, 3, 1},
      {"vgg-16", 256, 512, 28, 3, 1},     {"vgg-16", 512, 512, 28, 3, 1},
      {"u-net", 3, 64, 256, 3, 1},        {"u-net", 64, 64, 256, 3, 1},
      {"u-net", 64, 128, 128, 3, 1},      {"u-net", 128, 256, 64, 3, 1},
      {"u-net", 256, 256, 64, 3, 1},      {"u-net", 256, 512, 32, 3, 1},
      {"u-net", 512, 512, 32, 3, 1},      {"u-net", 1024, 1024, 16, 3, 1},
      {"u-net", 512, 256, 64, 3, 1},      {"u-net", 256, 128, 128, 3, 1},
      {"u-net", 128, 64, 256, 3, 1},
  };
  return layers;
}

}  // namespace trainyard::probe
