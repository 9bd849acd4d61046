// The fields of the laws in profile files. Every group of constants carries its provenance under
// "from"; a law without one is refused.
#include <array>

#include "sim/cost/profile_json.h"

namespace trainyard::cost {

using models::AttentionKernel;
using models::ConvolutionPass;
using models::Dtype;
using models::MemoryOp;

namespace {

using json::Choice;

constexpr std::array<Choice<Basis>, 4> kBases = {{{"measured", Basis::measured},
                                                  {"interpolated", Basis::interpolated},
                                                  {"extrapolated", Basis::extrapolated},
                                                  {"analytic", Basis::analytic}}};
constexpr std::array<Choice<Dtype>, 5> kDtypes = {{{"fp32", Dtype::fp32},
                                                   {"tf32", Dtype::tf32},
                                                   {"bf16", Dtype::bf16},
                                                   {"fp16", Dtype::fp16},
                                                   {"fp8", Dtype::fp8}}};
constexpr std::array<Choice<MemoryOp>, 20> kMemoryOps = {
    {{"elementwise", MemoryOp::elementwise},
     {"dropout", MemoryOp::dropout},
     {"activation", MemoryOp::activation},
     {"gated-activation", MemoryOp::gated_activation},
     {"varying-gated-activation", MemoryOp::varying_gated_activation},
     {"layer-norm", MemoryOp::layer_norm},
     {"rms-norm", MemoryOp::rms_norm},
     {"batch-norm", MemoryOp::batch_norm},
     {"softmax", MemoryOp::softmax},
     {"column-sum", MemoryOp::column_sum},
     {"rope", MemoryOp::rope},
     {"pooling", MemoryOp::pooling},
     {"embedding", MemoryOp::embedding},
     {"embedding-bag", MemoryOp::embedding_bag},
     {"permutation", MemoryOp::permutation},
     {"cast", MemoryOp::cast},
     {"amax", MemoryOp::amax},
     {"cross-entropy", MemoryOp::cross_entropy},
     {"parallel-cross-entropy", MemoryOp::parallel_cross_entropy},
     {"optimizer", MemoryOp::optimizer}}};
constexpr std::array<Choice<AttentionKernel>, 6> kAttentionKernels = {
    {{"sdpa_math", AttentionKernel::sdpa_math},
     {"fa1", AttentionKernel::fa1},
     {"triton", AttentionKernel::triton},
     {"fa2", AttentionKernel::fa2},
     {"fa3", AttentionKernel::fa3},
     {"cudnn", AttentionKernel::cudnn}}};
constexpr std::array<Choice<WinogradUse>, 3> kWinogradUses = {
    {{"none", WinogradUse::none},
     {"fused", WinogradUse::fused},
     {"separate", WinogradUse::separate}}};
constexpr std::array<Choice<CollectiveKind>, 5> kCollectives = {
    {{"all-reduce", CollectiveKind::all_reduce},
     {"all-gather", CollectiveKind::all_gather},
     {"reduce-scatter", CollectiveKind::reduce_scatter},
     {"broadcast", CollectiveKind::broadcast},
     {"all-to-all", CollectiveKind::all_to_all}}};

// Kernels that read from caches reach more than the datasheet bandwidth, but not several times it.
constexpr json::Bounds kMemoryShare = json::between(kShare.least, 3);
// Convolution factors: an algorithm with fewer multiplications gains at most a few times.
constexpr json::Bounds kFactor = json::between(1e-3, 4);
// More tiles of a result than any GPU computes at once.
constexpr json::Bounds kTiles = json::between(0, 1000);
// Beyond, a query of a short sequence would cost nothing but its start.
constexpr json::Bounds kKeys = json::between(0, 1e5);
// A law that is ten times off at a shape describes something else than that shape.
constexpr json::Bounds kResidual{0.1, 10, false};
constexpr std::array<Choice<ConvolutionPass>, 3> kPasses = {
    {{"forward", ConvolutionPass::forward},
     {"data_gradient", ConvolutionPass::data_gradient},
     {"weight_gradient", ConvolutionPass::weight_gradient}}};

// A range that the file may leave out.
void range(json::Fields& f, std::string_view key, SizeRange& value, std::string_view about) {
  std::optional<SizeRange> given;
  if (value.most > 0) given = value;
  f.section(key, given, about);
  value = given.value_or(SizeRange{});
}

// The same of bytes, as two fields.
void range(json::Fields& f, Bytes& least, Bytes& most) {
  std::optional<Bytes> given_least, given_most;
  if (most > Bytes(0)) {
    given_least = least;
    given_most = most;
  }
  f.field("least", given_least, json::not_negative, "Fewest bytes it was fitted on.");
  f.field("most", given_most, json::not_negative, "Most bytes; beyond, it is extrapolated.");
  least = given_least.value_or(Bytes(0));
  most = given_most.value_or(Bytes(0));
  if (least > most) f.problem("least", "above the most that it was fitted on");
}

}  // namespace

void visit_fields(json::Fields& f, SizeRange& range) {
  f.field("least", range.least, json::required, json::at_least(1), "Smallest fitted size.");
  f.field("most", range.most, json::required, json::at_least(1), "Largest fitted size.");
  if (range.least > range.most) f.problem("least", "above the largest fitted size");
}

void visit_fields(json::Fields& f, GemmResidual& row) {
  f.field("m", row.m, json::required, json::at_least(1), "Rows of the result.");
  f.field("n", row.n, json::required, json::at_least(1), "Columns of the result.");
  f.field("k", row.k, json::required, json::at_least(1), "Summed over.");
  f.field("batch", row.batch, json::optional, json::at_least(1), "Independent ones.");
  f.field("factor", row.factor, json::required, kResidual, "Measured time / time of the law.");
}

void visit_fields(json::Fields& f, ConvolutionResidual& row) {
  models::Convolution& c = row.shape;
  const json::Bounds size = json::at_least(1);
  f.choice("pass", c.pass, kPasses, json::required, "Which of the three products.");
  f.field("batch", c.batch, json::required, size, "Images.");
  f.field("in_channels", c.in_channels, json::required, size, "Of all groups.");
  f.field("out_channels", c.out_channels, json::required, size, "Of all groups.");
  f.field("in_height", c.in_height, json::required, size, "Of one image.");
  f.field("in_width", c.in_width, json::required, size, "Of one image.");
  f.field("out_height", c.out_height, json::required, size, "Of one image.");
  f.field("out_width", c.out_width, json::required, size, "Of one image.");
  f.field("kernel_height", c.kernel_height, json::required, size, "Of the filter.");
  f.field("kernel_width", c.kernel_width, json::required, size, "Of the filter.");
  f.field("groups", c.groups, json::optional, size, "Independent groups of channels.");
  f.field("factor", row.factor, json::required, kResidual, "Measured time / time of the law.");
}

void visit_fields(json::Fields& f, Provenance& from) {
  f.field("source", from.source, json::required, "Paper, data set or program.");
  f.field("machine", from.machine, json::required, "What it was measured on.");
  f.field("date", from.date, json::required, "Year, or year-month-day.");
  f.field("samples", from.samples, json::required, "What was measured, and how many.");
  f.field("residual", from.residual, json::required, "Error on what it was not fitted on.");
  f.choice("basis", from.basis, kBases, json::required, "How far the numbers may be trusted.");
  if (from.source.empty())
    f.problem("source", "may not be empty", "say where the numbers are from");
}

void visit_fields(json::Fields& f, GemmTiles& tiles) {
  f.field("multiprocessors", tiles.multiprocessors, json::required, json::between(1, 1e5),
          "Tiles at a time.");
  f.field("half", tiles.half, json::required, json::between(0.1, 1),
          "Rate of tiles of 128 x 128 over that of 256 x 128.");
  f.field("smaller", tiles.smaller, json::required, json::between(0.1, 1),
          "Rate of each smaller grade over that of the one before.");
  f.field("prologue", tiles.prologue, json::required, json::between(0, 1e4),
          "What starts and ends a tile, in terms of its sums.");
}

void visit_fields(json::Fields& f, GemmUnaligned& unaligned) {
  f.field("bytes_2", unaligned.bytes_2, json::required, kShare,
          "Share of both rates where rows begin at multiples of 2 bytes.");
  f.field("bytes_4", unaligned.bytes_4, json::required, kShare, "The same, of 4 bytes.");
  f.field("bytes_8", unaligned.bytes_8, json::required, kShare, "The same, of 8 bytes.");
  f.section("from", unaligned.from, json::required, "Provenance.");
}

void visit_fields(json::Fields& f, GemmLaw& law) {
  f.choice("dtype", law.dtype, kDtypes, json::required, "Type of the operands.");
  f.field("fixed", law.fixed, json::required, kStart, "t0, time of a kernel of no work.");
  f.field("compute_efficiency", law.compute_efficiency, json::required, kShare,
          "e, reached share of the dense peak.");
  f.field("memory_efficiency", law.memory_efficiency, json::required, kMemoryShare,
          "u, reached share of the memory bandwidth.");
  f.field("exponent", law.exponent, json::required, json::between(1, 8),
          "p of the norm that joins the two; large: a sharp roofline.");
  f.section("tiles", law.tiles, "Loss of products that do not fill the multiprocessors.");
  f.section("unaligned", law.unaligned,
            "What products reach whose rows begin at no multiples of 16 bytes.");
  f.field("row_scaled", law.row_scaled, kResidual,
          "fp8: time with a scale for each row over that with one for each tensor.");
  f.field("block_scaled", law.block_scaled, kResidual, "fp8: the same, for each 128 numbers.");
  f.field("micro_scaled", law.micro_scaled, kResidual, "fp8: the same, for each 32 numbers.");
  f.field("short_run", law.short_run, json::between(1, 2),
          "e of runs that end before power lowers the clock, over e of settled ones.");
  range(f, "m", law.m, "Fitted rows of the result.");
  range(f, "n", law.n, "Fitted columns of the result.");
  range(f, "k", law.k, "Fitted sizes summed over.");
  f.sections("residuals", law.residuals, json::optional, "Measured shapes.");
  f.section("from", law.from, json::required, "Provenance.");
}

void visit_fields(json::Fields& f, AttentionLaw& law) {
  f.choice("kernel", law.kernel, kAttentionKernels, "Whose kernel; any without.");
  f.choice("dtype", law.dtype, kDtypes, "Type of the operands; any without.");
  f.field("head_size", law.head_size, json::optional, json::not_negative, "0: any head size.");
  f.field("causal", law.causal, json::anything, "Masked or not; both without.");
  f.field("forward_fixed", law.forward_fixed, kStart,
          "Time of a kernel of no work; t0 of the GEMM law without.");
  f.field("backward_fixed", law.backward_fixed, kStart, "The same, backward.");
  f.field("forward", law.forward, json::required, kShare, "Reached share of the dense peak.");
  f.field("backward", law.backward, json::required, kShare, "The same of the backward pass.");
  f.field("forward_keys", law.forward_keys, json::optional, kKeys,
          "Keys' worth of time that a query costs beside those that it sees.");
  f.field("backward_keys", law.backward_keys, json::optional, kKeys, "The same, backward.");
  range(f, "length", law.length, "Fitted lengths of the sequence of queries.");
  f.section("from", law.from, json::required, "Provenance.");
}

void visit_fields(json::Fields& f, ConvolutionLaw& law) {
  f.choice("dtype", law.dtype, kDtypes, json::required, "Type of the operands.");
  f.field("efficiency", law.efficiency, json::required, kFactor,
          "Factor on the GEMM law's compute efficiency, of every convolution.");
  f.field("kernel_3x3", law.kernel_3x3, json::required, kFactor, "Factor of 3x3 kernels.");
  f.field("few_channels", law.few_channels, json::required, kFactor,
          "Factor of fewer than 16 input channels.");
  f.field("data_gradient", law.data_gradient, json::required, kFactor, "Factor of the pass.");
  f.field("weight_gradient", law.weight_gradient, json::required, kFactor, "Factor of the pass.");
  f.field("strided_data_gradient", law.strided_data_gradient, json::optional, kFactor,
          "Factor besides data_gradient where images are larger than what comes out.");
  f.field("channels_first", law.channels_first, json::optional,
          "Measured in NCHW, with the copies to and from NHWC that tensor cores need.");
  f.field("half_rate_tiles", law.half_rate_tiles, json::optional, kTiles,
          "Tiles of 128 x 128 of the result at which a convolution runs at half its rate.");
  f.choice(
      "winograd", law.winograd, kWinogradUses, json::optional,
      "Winograd's algorithm: in one kernel, or in kernels of their own where those are quicker.");
  f.sections("residuals", law.residuals, json::optional, "Measured shapes.");
  for (ConvolutionResidual& row : law.residuals)
    row.shape.dtype = law.dtype;
  f.section("from", law.from, json::required, "Provenance.");
}

void visit_fields(json::Fields& f, MemoryLaw& law) {
  f.choice("op", law.op, kMemoryOps, json::required, "Kind of kernel.");
  f.field("fixed", law.fixed, json::required, kStart, "Time of a kernel of no bytes.");
  f.field("efficiency", law.efficiency, json::required, kMemoryShare,
          "Reached share of the memory bandwidth.");
  f.field("backward_efficiency", law.backward_efficiency, kMemoryShare,
          "That of kernels of a backward pass; without: as efficiency.");
  f.field("l2_speedup", law.l2_speedup, json::optional, json::between(1, 10),
          "How many times faster what fits into the L2 moves.");
  f.field("element_rate", law.element_rate, json::between(1e-5, 1),
          "Numbers a second that are handled one by one, over the fp32 peak in FLOP/s.");
  range(f, law.least, law.most);
  f.section("from", law.from, json::required, "Provenance.");
}

void visit_fields(json::Fields& f, CollectiveLaw& law) {
  f.choice("kind", law.kind, kCollectives, json::required, "Which collective.");
  f.field("ranks", law.ranks, json::required, json::at_least(2), "Size of the measured group.");
  f.field("servers", law.servers, json::required, json::at_least(1), "Servers it spanned.");
  f.field("start", law.start, json::required, kStart, "a of a + S/B + c sqrt(S / 1 MB).");
  f.field("bandwidth", law.bandwidth, json::required, kRate, "B, bytes of the buffer.");
  f.field("per_sqrt_MB", law.per_sqrt_MB, json::required, kStart, "c.");
  f.field("in_switch", law.in_switch, json::optional, "Whether the switch reduces.");
  range(f, law.least, law.most);
  f.section("from", law.from, json::required, "Provenance.");
  if (law.in_switch && law.kind != CollectiveKind::all_reduce) {
    f.problem("in_switch", "only an all-reduce is reduced in the switch", "leave it out");
  }
  if (law.servers > law.ranks) f.problem("servers", "more servers than ranks");
}

void visit_fields(json::Fields& f, CollectiveStart& law) {
  f.field("start", law.start, json::required, kStart, "Of any collective.");
  f.field("per_step", law.per_step, json::required, kStart,
          "Of each step round a ring inside one server.");
  f.section("from", law.from, json::required, "Provenance.");
}

void visit_fields(json::Fields& f, PointToPointLaw& law) {
  f.field("same_server", law.same_server, json::required, "Whether both ranks share a server.");
  f.field("start", law.start, json::required, kStart, "Time of an empty message.");
  f.field("bandwidth", law.bandwidth, json::required, kRate, "Bytes per second.");
  range(f, law.least, law.most);
  f.section("from", law.from, json::required, "Provenance.");
}

void visit_fields(json::Fields& f, HostCopyLaw& law) {
  f.field("to_device", law.to_device, json::required, "From the host to the GPU, or back.");
  f.field("pinned", law.pinned, json::required, "Whether the host's memory is page-locked.");
  f.field("start", law.start, json::required, kStart, "Time of an empty copy.");
  f.field("bandwidth", law.bandwidth, json::required, kRate, "Bytes per second.");
  f.section("from", law.from, json::required, "Provenance.");
}

void visit_fields(json::Fields& f, GroupedGemmLaw& law) {
  const json::Bounds rows = json::between(0, 1e5);
  f.field("rows", law.rows, json::required, rows,
          "R: with r rows for each expert they take 1 + R / r times as long.");
  f.field("weight_rows", law.weight_rows, json::required, rows, "R of gradients of weights.");
  f.section("from", law.from, json::required, "Provenance.");
}

void visit_fields(json::Fields& f, AttentionDropoutLaw& law) {
  const json::Bounds rate = json::between(1e-5, 10);
  f.choice("kernel", law.kernel, kAttentionKernels, json::required, "Whose kernel draws them.");
  f.field("forward", law.forward, json::required, rate,
          "Random numbers drawn for each FLOP of the fp32 peak.");
  f.field("backward", law.backward, json::required, rate, "The same of the backward pass.");
  f.section("from", law.from, json::required, "Provenance.");
}

void visit_fields(json::Fields& f, OverlapLaw& law) {
  // A kernel that the loss of one multiprocessor slows by more than eight of them does not exist.
  const json::Bounds weight = json::between(0, 8);
  f.field("gemm", law.gemm, json::required, weight,
          "w of GEMMs, attention and convolutions: they run at 1 - w c / SM.");
  f.field("memory_bound", law.memory_bound, json::required, weight, "w of memory-bound kernels.");
  f.field("communication", law.communication, json::optional, kShare,
          "Share of its rate that communication keeps beside compute.");
  f.section("from", law.from, json::required, "Provenance.");
}

void visit_fields(json::Fields& f, HeldOutError& error) {
  f.field("what", error.what, json::required, "Kind of kernel or message, and type.");
  f.field("size", error.size, json::required, "Which of them.");
  f.field("fitted", error.fitted, json::required, json::not_negative, "Samples fitted on.");
  f.field("held_out", error.held_out, json::required, json::not_negative, "Samples tested on.");
  f.field("rejected", error.rejected, json::required, json::not_negative, "Samples not used.");
  f.field("mape", error.mape, json::required, json::not_negative, "Mean error; 0.061 is 6.1 %.");
  f.field("median", error.median, json::required, json::not_negative, "Median error.");
  f.field("worst", error.worst, json::required, json::not_negative, "Largest error.");
}

void visit_fields(json::Fields& f, Calibration& calibration) {
  f.field("program", calibration.program, json::required, "What fitted the profile.");
  f.field("machine", calibration.machine, json::required, "What was measured.");
  f.field("date", calibration.date, json::required, "Of the measurement.");
  f.field("driver", calibration.driver, json::optional, "Version.");
  f.field("cuda", calibration.cuda, json::optional, "Version.");
  f.field("samples", calibration.samples, json::required, json::not_negative, "How many.");
  f.sections("errors", calibration.errors, json::optional, "On samples not fitted on.");
  f.list("rejected", calibration.rejected, json::optional, json::anything,
         "What could not be fitted, and why.");
}

}  // namespace trainyard::cost
