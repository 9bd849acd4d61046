#include "sim/engine/compiled_program.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "sim/base/check.h"

namespace trainyard::engine {
namespace {

void check_op(const Program& program, const Op& op) {
  const std::size_t streams = program.streams.size();
  TRAINYARD_CHECK(op.stream < streams, "op on stream {} of {}", op.stream, streams);
  TRAINYARD_CHECK((std::uint64_t{op.waits} >> streams) == 0, "op waits {:#x} on {} streams",
                  op.waits, streams);
  TRAINYARD_CHECK(((op.waits >> op.stream) & 1) == 0, "op waits for its own stream {}", op.stream);
  TRAINYARD_CHECK(op.kind != OpKind::compute || op.subject < program.segments.size(),
                  "op runs segment {} of {}", op.subject, program.segments.size());
  TRAINYARD_CHECK(std::size_t{op.first_effect} + op.effects <= program.effects.size(),
                  "memory effects {}+{} of {}", op.first_effect, op.effects,
                  program.effects.size());
}

// Writes the counts to `out`, then adds those of one more block. Returns the place behind.
std::uint32_t* note_and_add(std::vector<std::uint32_t>& counts, const std::uint32_t* more,
                            std::uint32_t* out) {
  for (std::uint32_t& count : counts) {
    *out++ = count;
    count += *more++;
  }
  return out;
}

}  // namespace

CompiledCode::CompiledCode(const Program& source)
    : streams(static_cast<std::uint32_t>(source.streams.size())),
      works_of_segment_(source.segments.size()) {
  TRAINYARD_CHECK(streams <= kMaxStreams, "a program with {} streams", streams);
  for (const Segment& segment : source.segments)
    TRAINYARD_CHECK(std::size_t{segment.first_kernel} + segment.kernels <= source.kernels.size(),
                    "segment {}+{} of {} kernels", segment.first_kernel, segment.kernels,
                    source.kernels.size());
  std::uint32_t busy = 0;  // bit s: stream s has ops
  std::size_t all_ops = 0;
  for (const Block& block : source.blocks) {
    all_ops += block.ops.size();
    for (const Op& op : block.ops) {
      check_op(source, op);
      busy |= 1U << op.stream;
      if (op.kind == OpKind::compute) continue;
      const std::uint32_t number = column_of(op.kind, op.port);
      if (number >= column.size()) column.resize(number + 1, kUnused);
      if (column[number] != kUnused) continue;
      column[number] = columns++;
      collective_ports.push_back(op.kind == OpKind::collective ? op.port : kNoPort);
    }
  }
  ops.reserve(all_ops);
  for (const Block& block : source.blocks)
    compile_block(source, block, busy);
}

CompiledProgram::CompiledProgram(const Program& source, std::shared_ptr<CompiledCode> shared)
    : program(&source),
      code(std::move(shared)),
      streams(code->streams),
      columns(code->columns),
      ops(code->ops),
      stream_begin(code->stream_begin),
      thresholds(code->thresholds),
      works(code->works),
      collective_ports(code->collective_ports) {
  compile_calls();
}

void CompiledCode::compile_block(const Program& source, const Block& block, std::uint32_t busy) {
  std::array<std::uint32_t, kMaxStreams> of_stream{}, next{};  // ops of the block; into `ops`
  for (const Op& op : block.ops)
    ++of_stream[op.stream];
  auto behind = static_cast<std::uint32_t>(ops.size());
  for (std::uint32_t s = 0; s < streams; ++s) {
    stream_begin.push_back(next[s] = behind);
    behind += std::exchange(of_stream[s], 0);
  }
  stream_begin.push_back(behind);
  ops.resize(behind);
  std::vector<std::uint32_t> in_column(columns);
  // [stream * streams + other]: ops of the other that those of the stream have waited for.
  std::vector<std::uint32_t> waited(std::size_t{streams} * streams, kUnused);
  HostWork enqueued;
  for (std::uint32_t i = 0; i < block.ops.size(); ++i) {
    const Op& op = block.ops[i];
    enqueued.calls = later(enqueued.calls, op.call);
    CompiledOp& compiled = ops[next[op.stream] + of_stream[op.stream]++];
    compiled = {.kind = op.kind,
                .stream = op.stream,
                .index = i,
                .subject = op.subject,
                .port = op.port,
                .launches = op.launches,
                .launches_before = enqueued.launches,
                .calls_before = enqueued.calls,
                .first_effect = op.first_effect,
                .effects = op.effects,
                .drained = op.drained};
    enqueued.launches += op.launches;
    if (op.kind == OpKind::compute) {
      compiled.subject = work(op.subject, op.launches);
      compiled.has_kernels = source.segments[op.subject].kernels > 0;
    } else {
      compiled.column = column[column_of(op.kind, op.port)];
      compiled.sequence = in_column[compiled.column]++;
    }
    compiled.first_threshold = static_cast<std::uint32_t>(thresholds.size());
    for (std::uint32_t bits = op.waits & busy; bits != 0; bits &= bits - 1) {
      const auto s = static_cast<std::uint32_t>(std::countr_zero(bits));
      const std::uint32_t threshold = of_stream[s];
      std::uint32_t& known = waited[std::size_t{op.stream} * streams + s];
      if (std::exchange(known, threshold) == threshold) continue;
      compiled.waits |= 1U << s;
      thresholds.push_back(threshold);
    }
    for (std::uint32_t e = 0; e < op.effects; ++e) {
      const MemoryEffect& effect = source.effects[op.first_effect + e];
      compiled.takes |= effect.bytes > 0;
      compiled.releases |= effect.bytes < 0;
    }
  }
  counts.insert(counts.end(), in_column.begin(), in_column.end());
  host.push_back(enqueued);
}

void CompiledProgram::compile_calls() {
  const std::size_t blocks = program->blocks.size();
  std::vector<std::uint32_t> ops_of_block(blocks * streams);  // [block * streams + stream]
  for (std::size_t b = 0; b < blocks; ++b)
    for (std::size_t s = 0; s < streams; ++s)
      ops_of_block[b * streams + s] =
          stream_begin[b * (streams + 1) + s + 1] - stream_begin[b * (streams + 1) + s];
  stream_ops.assign(streams, 0);
  std::vector<std::uint32_t> sequences(columns);
  HostWork before;
  ended_base.resize(program->calls.size() * streams);
  sequence_base.resize(program->calls.size() * columns);
  launch_base.clear();
  launch_base.reserve(program->calls.size());
  call_base.clear();
  call_base.reserve(program->calls.size());
  std::uint32_t* ended = ended_base.data();
  std::uint32_t* sequence = sequence_base.data();
  for (const Call& call : program->calls) {
    TRAINYARD_CHECK(call.block < blocks, "call of block {} of {}", call.block, blocks);
    ended =
        note_and_add(stream_ops, ops_of_block.data() + std::size_t{call.block} * streams, ended);
    sequence =
        note_and_add(sequences, code->counts.data() + std::size_t{call.block} * columns, sequence);
    launch_base.push_back(before.launches);
    call_base.push_back(before.calls);
    before.launches += code->host[call.block].launches;
    before.calls = later(before.calls, code->host[call.block].calls);
  }
  all_launches = static_cast<std::int64_t>(before.launches);
  all_calls = before.calls;
}

std::uint32_t CompiledCode::work(std::uint32_t segment, std::uint32_t launches) {
  for (std::uint32_t known : works_of_segment_[segment])
    if (works[known].launches == launches) return known;
  const auto added = static_cast<std::uint32_t>(works.size());
  works.push_back({segment, launches});
  works_of_segment_[segment].push_back(added);
  return added;
}

Position CompiledProgram::seek(std::uint32_t stream, std::uint32_t call) const {
  Position position{.call = call};
  for (; position.call < program->calls.size(); ++position.call) {
    const std::size_t first =
        std::size_t{program->calls[position.call].block} * (streams + 1) + stream;
    position.at = stream_begin[first];
    position.last = stream_begin[first + 1];
    if (position.at < position.last) return position;
  }
  return position;
}

bool CompiledProgram::find(std::uint32_t number, std::uint32_t sequence,
                           std::uint32_t& stream) const {
  const std::vector<std::uint32_t>& known = code->column;
  if (number >= known.size() || known[number] == CompiledCode::kUnused) return false;
  const std::uint32_t column = known[number];
  std::size_t low = 0, high = program->calls.size();  // the last call whose base is <= sequence
  while (low < high) {
    const std::size_t middle = (low + high) / 2;
    if (sequence_base[middle * columns + column] <= sequence)
      low = middle + 1;
    else
      high = middle;
  }
  if (low == 0) return false;
  const std::uint32_t local = sequence - sequence_base[(low - 1) * columns + column];
  const std::size_t block = std::size_t{program->calls[low - 1].block} * (streams + 1);
  for (std::uint32_t i = stream_begin[block]; i < stream_begin[block + streams]; ++i) {
    const CompiledOp& op = ops[i];
    if (op.kind == OpKind::compute || op.column != column || op.sequence != local) continue;
    stream = op.stream;
    return true;
  }
  return false;
}

std::vector<Duration> CompiledProgram::call_times(Duration launch) const {
  // So that no sum of launches wraps.
  later(Duration(checked_product(all_launches, launch.count())), all_calls);
  std::vector<Duration> times;
  times.reserve(launch_base.size());
  for (std::size_t call = 0; call < launch_base.size(); ++call)
    times.push_back(static_cast<std::int64_t>(launch_base[call]) * launch + call_base[call]);
  return times;
}

std::vector<HostTimes::OfOp> CompiledCode::host_times(Duration launch) const {
  std::vector<HostTimes::OfOp> times;
  times.reserve(ops.size());
  for (const CompiledOp& op : ops) {
    const Duration from = static_cast<std::int64_t>(op.launches_before) * launch + op.calls_before;
    const Duration first = op.launches > 0 ? launch : Duration(0);
    times.push_back({from, from + first, from + op.launches * launch});
  }
  return times;
}

std::vector<WorkTime> CompiledProgram::work_times(const KernelTimes& times, Duration launch) const {
  std::vector<WorkTime> result;
  result.reserve(works.size());
  for (const Work& work : works) {
    const Segment& segment = program->segments[work.segment];
    WorkTime time;
    for (std::uint32_t k = segment.kernels; k-- > 0;) {
      const std::uint32_t kernel = program->kernels[segment.first_kernel + k];
      TRAINYARD_CHECK(kernel < times.kernel.size(), "kernel {} of {} times", kernel,
                      times.kernel.size());
      TRAINYARD_CHECK(times.kernel[kernel] >= Duration::zero(), "kernel {} takes {} ps", kernel,
                      times.kernel[kernel].count());
      time.total = later(time.total, times.kernel[kernel]);
      const auto launches =
          static_cast<std::int64_t>(launches_for(k, segment.kernels, work.launches));
      time.host = std::max(time.host, later(launches * launch, time.total));
    }
    result.push_back(time);
  }
  return result;
}

}  // namespace trainyard::engine
