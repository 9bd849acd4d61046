// Memory-bound kernels that work on rows, channels, windows and tokens.
#include <algorithm>

#include "batch_norm.cuh"
#include "memory_case.h"
#include "pooling.cuh"
#include "rows.cuh"
#include "tokens.cuh"

namespace trainyard::probe {
namespace {

template <typename T>
T* as(std::byte* data) {
  return reinterpret_cast<T*>(data);
}

std::size_t unsign(std::int64_t n) {
  return static_cast<std::size_t>(n);
}

// One of three, by how large the tensor is: small tensors come with other shapes than large ones.
template <typename Value>
Value by_size(std::size_t bytes, Value small, Value medium, Value large) {
  if (bytes <= std::size_t{1} << 20) return small;
  return bytes <= std::size_t{64} << 20 ? medium : large;
}

template <typename T>
void add_norms(std::vector<MemoryCase>& cases, std::size_t tensor) {
  const int columns = by_size(tensor, 1024, 4096, 8192);
  const std::int64_t rows = static_cast<std::int64_t>(tensor / sizeof(T)) / columns;
  const std::size_t bytes = unsign(rows * columns) * sizeof(T);
  const std::size_t row = unsign(columns) * sizeof(T), statistics = unsign(rows) * sizeof(float);
  const std::size_t parts = unsign(norm_parts(rows)) * 2 * unsign(columns) * sizeof(float);
  Operand kept = input(statistics);
  kept.content = Operand::Content::positive;
  for (const bool centre : {true, false}) {
    const char* op = centre ? "layer-norm" : "rms-norm";
    const Operand beta = centre ? input(row) : scratch(row);
    const Operand mean = centre ? output(statistics) : scratch(statistics);
    cases.push_back({op,
                     "forward",
                     rows,
                     columns,
                     {input(bytes), input(row), beta, output(bytes), mean, output(statistics)},
                     [=](std::byte* const* p, cudaStream_t stream) {
                       launch_norm<T>(
                           {as<const T>(p[0]), as<const T>(p[1]), as<const T>(p[2]), as<T>(p[3]),
                            as<float>(p[4]), as<float>(p[5]), rows, columns, 1e-5f},
                           centre, stream);
                     }});
    cases.push_back(
        {op,
         "backward",
         rows,
         columns,
         {input(bytes), input(bytes), input(row), centre ? input(statistics) : scratch(statistics),
          kept, output(bytes), scratch(parts), output(row), centre ? output(row) : scratch(row)},
         [=](std::byte* const* p, cudaStream_t stream) {
           launch_norm_backward<T>({as<const T>(p[0]), as<const T>(p[1]), as<const T>(p[2]),
                                    as<const float>(p[3]), as<const float>(p[4]), as<T>(p[5]),
                                    as<float>(p[6]), as<T>(p[7]), as<T>(p[8]), rows, columns},
                                   centre, stream);
         }});
  }
}

// Bytes of the packs that rows with a causal mask read: row r has r % queries + 1 columns to see.
std::size_t seen_bytes(std::int64_t rows, int queries, int pack) {
  std::size_t packs = 0;
  for (int q = 0; q < queries; ++q) {
    const std::int64_t times = rows / queries + (q < rows % queries ? 1 : 0);
    packs += unsign(times) * unsign((q + pack) / pack);
  }
  return packs * kPackBytes;
}

template <typename T>
void add_softmax(std::vector<MemoryCase>& cases, std::size_t tensor) {
  const int columns = by_size(tensor, 256, 1024, 2048);
  const std::int64_t rows = static_cast<std::int64_t>(tensor / sizeof(T)) / columns;
  const std::size_t bytes = unsign(rows * columns) * sizeof(T);
  for (const bool causal : {false, true}) {
    Operand from = input(bytes);
    if (causal) from.read = seen_bytes(rows, columns, kPack<T>);
    cases.push_back({"softmax",
                     causal ? "forward-causal" : "forward",
                     rows,
                     columns,
                     {from, output(bytes)},
                     [=](std::byte* const* p, cudaStream_t stream) {
                       launch_softmax<T>(
                           {as<const T>(p[0]), as<T>(p[1]), rows, columns, columns, 0.125f}, causal,
                           stream);
                     }});
    cases.push_back({"softmax",
                     causal ? "backward-causal" : "backward",
                     rows,
                     columns,
                     {from, from, output(bytes)},
                     [=](std::byte* const* p, cudaStream_t stream) {
                       launch_softmax_backward<T>({as<const T>(p[0]), as<const T>(p[1]),
                                                   as<T>(p[2]), rows, columns, columns, 0.125f},
                                                  causal, stream);
                     }});
  }
}

// A vocabulary of 32000 and a hidden size of 4096; ids are random, and of the table only the rows
// that they name are counted.
template <typename T>
void add_embedding(std::vector<MemoryCase>& cases, std::size_t tensor) {
  constexpr int kVocabulary = 32000, kHidden = 4096;
  const std::int64_t tokens = static_cast<std::int64_t>(tensor / sizeof(T)) / kHidden;
  const std::size_t bytes = unsign(tokens) * kHidden * sizeof(T);
  const std::size_t touched = unsign(distinct_ids(tokens, kVocabulary)) * kHidden;
  Operand ids = input(unsign(tokens) * sizeof(std::int32_t));
  ids.content = Operand::Content::ids;
  ids.bound = kVocabulary;
  Operand table;
  table.bytes = std::size_t{kVocabulary} * kHidden * sizeof(T);
  table.read = touched * sizeof(T);
  table.shared = true;
  cases.push_back({"embedding",
                   "gather",
                   tokens,
                   kHidden,
                   {table, ids, output(bytes)},
                   [=](std::byte* const* p, cudaStream_t stream) {
                     launch_gather(as<const T>(p[0]), as<const std::int32_t>(p[1]), as<T>(p[2]),
                                   tokens, kHidden, stream);
                   }});
  Operand gradient;
  gradient.bytes = std::size_t{kVocabulary} * kHidden * sizeof(float);
  gradient.read = gradient.written = touched * sizeof(float);
  gradient.shared = true;
  cases.push_back({"embedding",
                   "scatter-add",
                   tokens,
                   kHidden,
                   {gradient, ids, input(bytes)},
                   [=](std::byte* const* p, cudaStream_t stream) {
                     launch_scatter_add(as<const T>(p[2]), as<const std::int32_t>(p[1]),
                                        as<float>(p[0]), tokens, kHidden, stream);
                   }});
}

// The vocabularies of Llama 2 and Llama 3.
template <typename T>
void add_cross_entropy(std::vector<MemoryCase>& cases, std::size_t tensor) {
  const int columns = by_size(tensor, 32000, 32000, 128256);
  const std::int64_t rows = static_cast<std::int64_t>(tensor / sizeof(T)) / columns;
  if (rows < 1) return;
  Operand labels = input(unsign(rows) * sizeof(std::int32_t));
  labels.content = Operand::Content::ids;
  labels.bound = columns;
  cases.push_back(
      {"cross-entropy",
       "forward-backward",
       rows,
       columns,
       {in_place(unsign(rows * columns) * sizeof(T)), labels, output(unsign(rows) * sizeof(float))},
       [=](std::byte* const* p, cudaStream_t stream) {
         launch_cross_entropy(as<T>(p[0]), as<const std::int32_t>(p[1]), as<float>(p[2]), rows,
                              columns, 1.0f / static_cast<float>(rows), stream);
       }});
}

// Channels and image sides of ResNet's stages. Both passes must read their inputs twice: the second
// time from HBM unless they fit into the L2 cache, and so it is counted, as the models count it.
template <typename T>
void add_batch_norm(std::vector<MemoryCase>& cases, std::size_t tensor) {
  const int channels = by_size(tensor, 512, 256, 64), side = by_size(tensor, 7, 28, 112);
  const std::int64_t pixels = std::int64_t{side} * side;
  const std::int64_t images = std::max<std::int64_t>(
      1, static_cast<std::int64_t>(tensor / sizeof(T)) / (channels * pixels));
  const std::size_t bytes = unsign(images * pixels * channels) * sizeof(T);
  const std::size_t row = unsign(channels) * sizeof(float);
  Operand twice = input(bytes);
  twice.read *= 2;
  Operand inverse = input(row);
  inverse.content = Operand::Content::positive;
  const Operand parts = scratch(kNormParts * 2 * row);
  for (const bool nchw : {false, true}) {
    const std::int64_t outer = nchw ? images : images * pixels, inner = nchw ? pixels : 1;
    cases.push_back(
        {"batch-norm",
         nchw ? "forward-nchw" : "forward",
         images * pixels,
         channels,
         {twice, output(bytes), input(row), input(row), output(row), output(row), parts},
         [=](std::byte* const* p, cudaStream_t stream) {
           launch_batch_norm<T, false>(
               {as<const T>(p[0]), nullptr, as<T>(p[1]), as<const float>(p[2]),
                as<const float>(p[3]), as<float>(p[4]), as<float>(p[5]), nullptr, nullptr,
                as<float>(p[6]), outer, channels, inner, 1e-5f},
               stream);
         }});
    cases.push_back({"batch-norm",
                     nchw ? "backward-nchw" : "backward",
                     images * pixels,
                     channels,
                     {twice, twice, output(bytes), input(row), input(row), inverse, output(row),
                      output(row), parts},
                     [=](std::byte* const* p, cudaStream_t stream) {
                       launch_batch_norm<T, true>(
                           {as<const T>(p[0]), as<const T>(p[1]), as<T>(p[2]),
                            as<const float>(p[3]), nullptr, as<float>(p[4]), as<float>(p[5]),
                            as<float>(p[6]), as<float>(p[7]), as<float>(p[8]), outer, channels,
                            inner, 1e-5f},
                           stream);
                     }});
  }
}

// Max: 3 x 3 windows every 2 pixels, as after ResNet's first layer (2 x 2 of VGG are easier).
// Average: over 7 x 7 pixels, as before its last. `tensor` is the input.
template <typename T>
void add_pooling(std::vector<MemoryCase>& cases, std::size_t tensor) {
  for (const bool maximum : {true, false}) {
    PoolShape s{};
    s.in_height = s.in_width = maximum ? by_size(tensor, 28, 112, 112) : 7;
    s.channels = maximum ? 64 : 2048;
    s.window = maximum ? 3 : 7;
    s.stride = maximum ? 2 : 7;
    s.padding = maximum ? 1 : 0;
    s.out_height = s.out_width = (s.in_height + 2 * s.padding - s.window) / s.stride + 1;
    const std::size_t in_image = unsign(s.in_height) * unsign(s.in_width) * unsign(s.channels);
    const std::size_t out_image = unsign(s.out_height) * unsign(s.out_width) * unsign(s.channels);
    s.batch = static_cast<int>(std::max<std::size_t>(1, tensor / sizeof(T) / in_image));
    const std::size_t images = unsign(s.batch);
    const std::size_t in = images * in_image * sizeof(T), out = images * out_image * sizeof(T);
    const std::size_t winners = images * out_image;
    const std::int64_t rows = std::int64_t{s.batch} * s.in_height * s.in_width;
    cases.push_back({"pooling",
                     maximum ? "max-forward" : "average-forward",
                     rows,
                     s.channels,
                     {input(in), output(out), maximum ? output(winners) : scratch(256)},
                     [=](std::byte* const* p, cudaStream_t stream) {
                       launch_pool(as<const T>(p[0]), as<T>(p[1]), as<std::uint8_t>(p[2]), s,
                                   maximum, stream);
                     }});
    cases.push_back({"pooling",
                     maximum ? "max-backward" : "average-backward",
                     rows,
                     s.channels,
                     {input(out), maximum ? input(winners) : scratch(256), output(in)},
                     [=](std::byte* const* p, cudaStream_t stream) {
                       launch_pool_backward(as<const T>(p[0]), as<const std::uint8_t>(p[1]),
                                            as<T>(p[2]), s, maximum, stream);
                     }});
  }
}

template <typename T>
std::vector<MemoryCase> cases_of(std::size_t bytes) {
  std::vector<MemoryCase> cases;
  add_norms<T>(cases, bytes);
  add_softmax<T>(cases, bytes);
  add_embedding<T>(cases, bytes);
  add_cross_entropy<T>(cases, bytes);
  add_batch_norm<T>(cases, bytes);
  add_pooling<T>(cases, bytes);
  return cases;
}

}  // namespace

std::vector<MemoryCase> row_cases(Type type, std::size_t bytes) {
  switch (type) {
    case Type::fp16: return cases_of<__half>(bytes);
    case Type::bf16: return cases_of<__nv_bfloat16>(bytes);
    default: return cases_of<float>(bytes);
  }
}

}  // namespace trainyard::probe
