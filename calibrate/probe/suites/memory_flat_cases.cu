// Memory-bound kernels whose elements do not need each other.
#include "elementwise.cuh"
#include "memory_case.h"
#include "optimizer.cuh"

namespace trainyard::probe {
namespace {

constexpr std::int64_t kHidden = 4096;  // columns of an activation of a language model

template <typename T>
T* as(std::byte* data) {
  return reinterpret_cast<T*>(data);
}

// What the cases of one size share.
template <typename T>
struct Flat {
  explicit Flat(std::size_t tensor_bytes)
      : rows(static_cast<std::int64_t>(tensor_bytes / sizeof(T)) / kHidden),
        count(rows * kHidden) {}
  std::size_t bytes() const { return static_cast<std::size_t>(count) * sizeof(T); }
  std::size_t floats() const { return static_cast<std::size_t>(count) * sizeof(float); }

  std::int64_t rows, count;
  std::vector<MemoryCase> cases;

  void add(const char* op, const char* variant, std::vector<Operand> operands,
           std::function<void(std::byte* const*, cudaStream_t)> run) {
    cases.push_back({op, variant, rows, kHidden, std::move(operands), std::move(run)});
  }

  // kIn tensors to kOut tensors, and a bias of one row if the function wants one.
  template <int kIn, int kOut, typename Function>
  void map(const char* op, const char* variant, Function function, bool bias) {
    std::vector<Operand> operands(kIn, input(bytes()));
    operands.insert(operands.end(), kOut, output(bytes()));
    if (bias) operands.push_back(input(kHidden * sizeof(T)));
    const std::int64_t packs = count / kPack<T>;
    add(op, variant, operands, [=](std::byte* const* p, cudaStream_t stream) {
      MapStreams<T, kIn, kOut> streams{};
      for (int i = 0; i < kIn; ++i)
        streams.in[i] = as<const T>(p[i]);
      for (int i = 0; i < kOut; ++i)
        streams.out[i] = as<T>(p[kIn + i]);
      streams.bias = bias ? as<const T>(p[kIn + kOut]) : nullptr;
      streams.packs = packs;
      streams.packs_per_row = kHidden / kPack<T>;
      launch_map(streams, function, stream);
    });
  }
};

template <typename T>
void add_elementwise(Flat<T>& flat) {
  flat.template map<1, 1>("elementwise", "copy", CopyFunction{}, false);
  flat.template map<2, 1>("elementwise", "add", AddFunction{}, false);
  flat.template map<1, 1>("activation", "gelu-forward", GeluFunction{}, true);
  flat.template map<2, 1>("activation", "gelu-backward", GeluBackwardFunction{}, true);
  flat.template map<1, 1>("activation", "relu-forward", ReluFunction{}, false);
  flat.template map<2, 1>("activation", "relu-backward", ReluBackwardFunction{}, false);
  flat.template map<2, 1>("activation", "swiglu-forward", SwigluFunction{}, false);
  flat.template map<3, 2>("activation", "swiglu-backward", SwigluBackwardFunction{}, false);
  for (const bool norm : {false, true}) {
    const std::int64_t count = flat.count;
    flat.add("elementwise", norm ? "norm" : "sum",
             {input(flat.bytes()), scratch(kSumParts * sizeof(float)), output(sizeof(float))},
             [=](std::byte* const* p, cudaStream_t stream) {
               launch_sum(as<const T>(p[0]), count, norm, as<float>(p[1]), as<float>(p[2]), stream);
             });
  }
}

template <typename T>
void add_dropout(Flat<T>& flat) {
  constexpr double kProbability = 0.1;
  const std::int64_t count = flat.count;
  const std::size_t mask = static_cast<std::size_t>(count);
  flat.add("dropout", "forward", {input(flat.bytes()), output(flat.bytes()), output(mask)},
           [=](std::byte* const* p, cudaStream_t stream) {
             launch_dropout(as<const T>(p[0]), as<T>(p[1]), as<std::uint8_t>(p[2]), count,
                            kProbability, 1, stream);
           });
  flat.add("dropout", "backward", {input(flat.bytes()), input(mask), output(flat.bytes())},
           [=](std::byte* const* p, cudaStream_t stream) {
             launch_dropout_backward(as<const T>(p[0]), as<const std::uint8_t>(p[1]), as<T>(p[2]),
                                     count, kProbability, stream);
           });
}

// In place, 32 heads of 128, positions up to 4096.
template <typename T>
void add_rope(Flat<T>& flat) {
  constexpr int kHead = 128;
  const std::int64_t tokens = flat.rows;
  const int length = static_cast<int>(tokens < 4096 ? tokens : 4096);
  const std::size_t table = static_cast<std::size_t>(length) * (kHead / 2) * sizeof(float);
  for (const bool backward : {false, true}) {
    flat.add("rope", backward ? "backward" : "forward",
             {in_place(flat.bytes()), input(table), input(table)},
             [=](std::byte* const* p, cudaStream_t stream) {
               launch_rope(as<const T>(p[0]), as<T>(p[0]), as<const float>(p[1]),
                           as<const float>(p[2]), tokens, length, static_cast<int>(kHidden) / kHead,
                           kHead, backward, stream);
             });
  }
}

// `flat.count` parameters: gradients of the type, master weights and moments in fp32, and a copy of
// the weights in the type if that is not fp32.
template <typename T>
void add_optimizers(Flat<T>& flat) {
  constexpr bool kCopy = !std::is_same_v<T, float>;
  const std::int64_t packs = flat.count / kPack<T>;
  const Operand copy = kCopy ? output(flat.bytes()) : scratch(256);
  Operand second = in_place(flat.floats());
  second.content = Operand::Content::positive;
  flat.add("optimizer", "adam",
           {input(flat.bytes()), in_place(flat.floats()), in_place(flat.floats()), second, copy},
           [=](std::byte* const* p, cudaStream_t stream) {
             launch_adam<T>({as<const T>(p[0]), as<float>(p[1]), as<float>(p[2]), as<float>(p[3]),
                             as<T>(p[4]), packs},
                            {1e-4f, 0.9f, 0.95f, 1e-8f, 0.1f, 1.01f, 1.01f}, stream);
           });
  flat.add("optimizer", "sgd-momentum",
           {input(flat.bytes()), in_place(flat.floats()), in_place(flat.floats()), copy},
           [=](std::byte* const* p, cudaStream_t stream) {
             launch_momentum<T>(
                 {as<const T>(p[0]), as<float>(p[1]), as<float>(p[2]), nullptr, as<T>(p[3]), packs},
                 {1e-4f, 0.9f, 1e-4f}, stream);
           });
}

template <typename T>
std::vector<MemoryCase> cases_of(std::size_t bytes) {
  Flat<T> flat(bytes);
  add_elementwise(flat);
  add_dropout(flat);
  add_rope(flat);
  add_optimizers(flat);
  return std::move(flat.cases);
}

}  // namespace

std::vector<MemoryCase> flat_cases(Type type, std::size_t bytes) {
  switch (type) {
    case Type::fp16: return cases_of<__half>(bytes);
    case Type::bf16: return cases_of<__nv_bfloat16>(bytes);
    default: return cases_of<float>(bytes);
  }
}

}  // namespace trainyard::probe
