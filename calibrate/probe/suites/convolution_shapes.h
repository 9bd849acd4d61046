// Which convolutions are measured: the layers of ResNet-50, VGG-16 and U-Net. Needs no CUDA.
#pragma once

#include <vector>

namespace trainyard::probe {

struct ConvolutionLayer {
  const char* network;
  int in_channels, out_channels, side;  // of the input, which is square
  int kernel, stride;

  int padding() const { return kernel / 2; }
  int out_side() const { return (side + 2 * padding() - kernel) / stride + 1; }
  double flops(int batch) const;  // of any of the three passes
};

// Distinct layers, the most telling first.
const std::vector<ConvolutionLayer>& convolution_layers();

}  // namespace trainyard::probe
