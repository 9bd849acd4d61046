// The two ends of a vision transformer. b images, n patches of P x P pixels and c channels, s = n
// tokens or n + 1 with a class token; both ends are whole on every tensor-parallel rank.
//
//   patches      by hand as Megatron-LM: pixels sorted by patch, b n x h x c P^2; in PyTorch a
//                convolution whose stride is its size. Images need no gradient.
//   positions    a learned table of s rows, with the class token in front; dropout
//   classifier   final norm of all tokens; the class token, or the mean; b x classes x h
//
//   Kept: the sorted pixels, the dropout mask; the norm's input, the classifier's input and its
//   fp32 probabilities.
//   Parameters: h (c P^2 + 1) + h (class token) + s h, layers, 2 h + (h + 1) classes.
//
// Source: Dosovitskiy et al., ICLR 2021, section 3.1; Megatron-LM, VitBackbone; Hugging Face
// transformers, modeling_vit.py.
#include "models/transformer/vision.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/families/execution_check.h"
#include "models/transformer/pytorch_script.h"
#include "models/transformer/transformer.h"

namespace trainyard::models {
namespace {

class Ends {
 public:
  Ends(const VisionTransformer& network, const Execution& execution)
      : n_(network), s_(slice(network.stack, execution)) {}

  LayerWork embedding() const;
  LayerWork classifier() const;

 private:
  bool by_hand() const { return s_.kernels.fusion == Fusion::by_hand; }
  std::int64_t pixels() const { return n_.channels * n_.patch * n_.patch; }  // of a patch
  // A context-parallel rank sorts and multiplies its own patches; a convolution sees whole images.
  std::int64_t rows() const {
    const std::int64_t all = s_.micro_batch * n_.patches();
    return by_hand() ? divide_up(all, s_.context) : all;
  }
  Bytes states() const { return s_.shard_tokens * s_.hidden * s_.wide_element(); }
  Bytes mask() const { return Bytes(s_.dropout ? s_.shard_tokens * s_.hidden : 0); }
  Bytes read_by_classifier() const { return s_.micro_batch * s_.hidden * s_.element(); }
  Bytes probabilities() const { return s_.micro_batch * n_.classes * size_of(Dtype::fp32); }

  Kernel convolution(ConvolutionPass pass) const {
    return Convolution{.batch = s_.micro_batch,
                       .in_channels = n_.channels,
                       .out_channels = s_.hidden,
                       .in_height = n_.height,
                       .in_width = n_.width,
                       .out_height = n_.height / n_.patch,
                       .out_width = n_.width / n_.patch,
                       .kernel_height = n_.patch,
                       .kernel_width = n_.patch,
                       .pass = pass,
                       .dtype = s_.gemm};
  }
  void memory(WorkList& list, std::string name, MemoryOp op, Bytes read, Bytes written) const {
    list.kernel(std::move(name), MemoryBound{op, read, written});
  }
  void patches_forward(WorkList& list) const;
  void patches_backward(WorkList& list) const;
  void classifier_forward(WorkList& list) const;
  void classifier_backward(WorkList& list) const;

  const VisionTransformer& n_;
  TransformerSlice s_;
};

void Ends::patches_forward(WorkList& list) const {
  if (by_hand()) {
    const Bytes images = rows() * pixels() * s_.element();
    memory(list, "sort pixels by patch", MemoryOp::elementwise, images, images);
    list.kernel("patches", Gemm{rows(), s_.hidden, pixels(), 1, s_.gemm});
  } else {
    AutocastCopies(list, s_).weight("patches", s_.hidden * pixels(), s_.hidden);
    list.kernel("patches", convolution(ConvolutionPass::forward));
  }
  if (s_.kernels.fusion == Fusion::compiled) return;  // the rest is part of the first norm
  if (s_.kernels.fusion == Fusion::eager && n_.class_token)
    memory(list, "class token", MemoryOp::elementwise, states(), states());
  memory(list, "positions", MemoryOp::elementwise, (by_hand() ? 2 : 1) * states(), states());
  if (s_.dropout) memory(list, "embedding dropout", MemoryOp::dropout, states(), states() + mask());
}

void Ends::patches_backward(WorkList& list) const {
  if (s_.dropout && s_.kernels.fusion != Fusion::compiled)
    memory(list, "embedding dropout backward", MemoryOp::dropout, states() + mask(), states());
  // The sum over the images.
  memory(list, "positions backward", MemoryOp::elementwise, states(), Bytes(0));
  gather_tokens(list, s_, "patch gradient all-gather");
  list.weight_gradient("patches weight gradient",
                       by_hand() ? Kernel(Gemm{s_.hidden, pixels(), rows(), 1, s_.gemm})
                                 : convolution(ConvolutionPass::weight_gradient));
  if (by_hand()) return;
  memory(list, "patches bias gradient", MemoryOp::column_sum, rows() * s_.hidden * s_.element(),
         Bytes(0));
  AutocastCopies(list, s_).weight_gradient("patches", s_.hidden * pixels(), s_.hidden);
}

LayerWork Ends::embedding() const {
  LayerWork work;
  work.name = "patches";
  work.parameters = s_.hidden * (pixels() + 1) + (n_.class_token ? s_.hidden : 0) +
                    n_.sequence_length() * s_.hidden;
  work.matrices = {{s_.hidden, pixels()}, {n_.sequence_length(), s_.hidden}};
  work.kept.add(Module::embedding, rows() * pixels() * s_.element() + mask());
  work.output = s_.stream_states();
  work.forward_model_flops = Flops(2.0 * static_cast<double>(s_.micro_batch * n_.patches()) *
                                   static_cast<double>(s_.hidden * pixels()));
  work.skipped_flops = work.forward_model_flops;  // images have no gradient
  WorkList forward;
  WorkList backward = WorkList::of_backward();
  patches_forward(forward);
  patches_backward(backward);
  work.forward = forward.take();
  work.backward = backward.take();
  return work;
}

void Ends::classifier_forward(WorkList& list) const {
  by_hand() ? norm_forward(list, s_, "final norm")
            : PytorchScript(list, s_).norm("final norm", true);
  gather_tokens(list, s_, "classifier all-gather");
  if (!n_.class_token)
    memory(list, "mean of the patches", MemoryOp::elementwise, s_.hidden_states(),
           read_by_classifier());
  list.kernel("classifier", Gemm{s_.micro_batch, n_.classes, s_.hidden, 1, s_.gemm});
  memory(list, "cross-entropy", MemoryOp::cross_entropy, probabilities(), probabilities());
}

void Ends::classifier_backward(WorkList& list) const {
  memory(list, "cross-entropy backward", MemoryOp::cross_entropy, probabilities(), probabilities());
  list.kernel("classifier input gradient", Gemm{s_.micro_batch, s_.hidden, n_.classes, 1, s_.gemm});
  list.weight_gradient("classifier weight gradient",
                       Gemm{n_.classes, s_.hidden, s_.micro_batch, 1, s_.gemm});
  // All tokens get a gradient: zeros for those that the classifier did not read, or the same for
  // all.
  memory(list, n_.class_token ? "class token backward" : "mean of the patches backward",
         MemoryOp::elementwise, read_by_classifier(), states());
  by_hand() ? norm_backward(list, s_, "final norm backward")
            : PytorchScript(list, s_).norm_gradient("final norm", false);
}

LayerWork Ends::classifier() const {
  LayerWork work;
  work.name = "classifier and loss";
  work.parameters = norm_parameters(n_.stack) + (s_.hidden + 1) * n_.classes;
  work.matrices = {{n_.classes, s_.hidden}};
  work.kept.add(Module::layer_input, states());
  work.kept.add(Module::head, read_by_classifier());
  work.logits = probabilities();
  work.forward_model_flops = Flops(2.0 * static_cast<double>(s_.micro_batch) *
                                   static_cast<double>(s_.hidden * n_.classes));
  WorkList forward;
  WorkList backward = WorkList::of_backward();
  classifier_forward(forward);
  classifier_backward(backward);
  work.forward = forward.take();
  work.backward = backward.take();
  return work;
}

}  // namespace

Execution vision_execution(const VisionTransformer& network, const Execution& execution) {
  Execution patches = execution;
  patches.micro_batch.sequence_length = network.sequence_length();
  return patches;
}

NetworkWork vision_work(const VisionTransformer& network, const Execution& execution) {
  const Execution patches = vision_execution(network, execution);
  const Ends ends(network, patches);
  NetworkWork work = stack_work(ends.embedding(), transformer_layer(network.stack, patches),
                                ends.classifier(), network.stack.layers);
  work.input = execution.micro_batch.size * network.channels * network.height * network.width *
               size_of(Dtype::fp32);
  return work;
}

std::int64_t vision_parameters(const VisionTransformer& network) {
  const Ends ends(network, vision_execution(network, {}));
  return ends.embedding().parameters + ends.classifier().parameters +
         network.stack.layers * layer_parameters(network.stack, 1);
}

// The length of the sequence follows from the image, so what it does not divide by is to blame.
void check_vision(Problems& problems, const VisionTransformer& n, const Execution& e) {
  check_plain(problems, n.stack);
  must_be_positive(problems, "", "channels", n.channels);
  must_be_positive(problems, "", "patch size", n.patch);
  must_be_positive(problems, "", "classes", n.classes);
  if (!problems.empty()) return;
  if (n.height < n.patch || n.width < n.patch || n.height % n.patch != 0 ||
      n.width % n.patch != 0) {
    problems.push_back({"", fmt::format("an image of {}x{} pixels is not divisible into patches of "
                                        "{}x{}",
                                        n.height, n.width, n.patch, n.patch)});
    return;
  }
  const double image = static_cast<double>(n.channels) * static_cast<double>(n.height) *
                       static_cast<double>(n.width);
  const double batch = static_cast<double>(e.micro_batch.size),
               hidden = static_cast<double>(n.stack.hidden);
  const double classes = static_cast<double>(n.classes);
  if (16 * std::max({batch * image, hidden * image, batch * classes, hidden * classes}) >= 0x1p62) {
    problems.push_back({"",
                        "the sizes of the images and of the micro-batch multiply to more than "
                        "2^62 bytes"});
    return;
  }
  Problems of_stack;
  check_stack(of_stack, n.stack, vision_execution(n, e));
  for (ExecutionProblem& problem : of_stack) {
    if (problem.member == "sequence_length") {
      problem.member = e.context > 1 ? "context" : "sequence_parallel";
      problem.message += fmt::format("; it is {} patches{}", n.patches(),
                                     n.class_token ? " and a class token" : "");
    }
    problems.push_back(std::move(problem));
  }
}

const Family<VisionTransformer>& row_of(const VisionTransformer*) {
  static const Family<VisionTransformer> row = {
      .name = "vision_transformer",
      .words = "a vision transformer",
      .sample = Sample::image,
      .check = check_vision,
      .work = vision_work,
      .parameters = [](const VisionTransformer& n, std::int64_t) { return vision_parameters(n); },
      .chain =
          [](const VisionTransformer& n) {
            return ChainLength{n.stack.layers + 2, n.stack.layers};
          },
      .stack = [](const VisionTransformer& n) { return &n.stack; }};
  return row;
}

}  // namespace trainyard::models
