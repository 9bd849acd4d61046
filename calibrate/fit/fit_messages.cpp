// Laws of messages: collectives T = a + S/B + c sqrt(S / 1 MB), send and receive and copies to and
// from the host T = a + S/B. Source: docs/cost-messages.md.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>

#include "calibrate/fit/fitting.h"

namespace trainyard::fit {
namespace {

constexpr double kSizeDistance = 0.1;  // in ln of bytes: dealt together

Bytes bytes_of(const Sample& sample) {
  if (const auto* c = std::get_if<CollectiveCase>(&sample.of)) return c->bytes;
  if (const auto* c = std::get_if<PeerCase>(&sample.of)) return c->bytes;
  return as<CopyCase>(sample).bytes;
}

// a + S/B (+ c sqrt(S / 1 MB)) in seconds.
double law_time(const Constants& values, const Sample& sample) {
  const auto bytes = static_cast<double>(bytes_of(sample).count());
  const double root = values.size() > 2 ? values[2] * std::sqrt(bytes / 1e6) : 0;
  return values[0] + bytes / values[1] + root;
}

LawTask task_of(std::vector<const Sample*> samples, bool with_root) {
  LawTask task;
  task.samples = std::move(samples);
  double best = 1;  // the highest rate that was seen
  double shortest = 1;
  for (const Sample* sample : task.samples) {
    const auto bytes = static_cast<double>(std::max<std::int64_t>(bytes_of(*sample).count(), 1));
    task.places.push_back({std::log(bytes)});
    best = std::max(best, bytes / (sample->time_us * 1e-6));
    shortest = std::min(shortest, sample->time_us * 1e-6);
  }
  task.distance = kSizeDistance;
  task.constants = {start_up(shortest), logarithmic(best * 0.1, best * 10, best * 1.1)};
  if (with_root) task.constants.push_back(start_up(1e-5));
  task.predict = [samples = task.samples](const Constants& values,
                                          const std::vector<std::size_t>& which) {
    std::vector<double> seconds;
    for (const std::size_t i : which)
      seconds.push_back(law_time(values, *samples[i]));
    return seconds;
  };
  return task;
}

void size_of_record(const Sample& sample, FitRecord& record) {
  record.size_name = "bytes";
  record.size = static_cast<double>(bytes_of(sample).count());
  record.shape = fmt::format("{} bytes", bytes_of(sample).count());
}

std::pair<Bytes, Bytes> range(const LawTask& task, const LawFit& fit) {
  Bytes least, most;
  for (const std::size_t i : fit.with(SampleFate::fitted)) {
    const Bytes bytes = bytes_of(*task.samples[i]);
    least = least.count() == 0 ? bytes : std::min(least, bytes);
    most = std::max(most, bytes);
  }
  return {least, most};
}

struct Fitted {
  LawFit fit;
  Bytes least, most;
  cost::Provenance from;
};

// A law of messages with its records; nothing, with a warning, if there are too few samples.
using Describe = std::function<void(const Sample&, FitRecord&)>;
std::optional<Fitted> fit_messages(const Fitting& f, const std::vector<const Sample*>& samples,
                                   bool with_root, const Describe& describe) {
  if (samples.empty()) return std::nullopt;
  LawTask task = task_of(samples, with_root);
  if (!f.enough(samples, distinct(task.places), task.constants.size() + 1, describe))
    return std::nullopt;
  Fitted fitted;
  fitted.fit = fit_law(task);
  std::tie(fitted.least, fitted.most) = range(task, fitted.fit);
  const std::size_t first = f.result.records.size();
  f.records(
      task, fitted.fit,
      [&](const Sample& s) { return microseconds(Seconds(law_time(fitted.fit.values, s))); },
      describe);
  fitted.from = f.provenance(fmt::format("{} sizes, {} fitted", samples.size(),
                                         fitted.fit.with(SampleFate::fitted).size()),
                             first);
  return fitted;
}

// Kind, ranks, servers: what a profile has one law of.
using Group = std::tuple<std::string, int, int>;

Group group_of(const CollectiveCase& c) {
  return {c.collective, c.servers, c.ranks};
}

void describe_collective(const Sample& sample, FitRecord& record) {
  const CollectiveCase& c = as<CollectiveCase>(sample);
  record.group = title(c.collective, c.ranks, c.servers);
  size_of_record(sample, record);
  if (c.backend != "nccl") record.shape += " " + c.backend;
  if (c.in_switch) record.shape += " in switch";
}

// Of one group: the library's samples before those of our own ring; of both kinds of reduction the
// one that was measured at more sizes. The others are set aside with the reason.
std::vector<const Sample*> best_samples(const Fitting& f,
                                        const std::vector<const Sample*>& samples) {
  std::map<std::pair<bool, bool>, std::vector<const Sample*>> by;  // not nccl, in switch
  for (const Sample* sample : samples) {
    const CollectiveCase& c = as<CollectiveCase>(*sample);
    by[{c.backend != "nccl", c.in_switch}].push_back(sample);
  }
  const bool other = by.begin()->first.first;
  const std::size_t plain = by[{other, false}].size(), in_switch = by[{other, true}].size();
  const std::pair<bool, bool> best = {other, in_switch > plain};
  for (const auto& [key, set_aside] : by)
    if (key != best)
      f.unused(set_aside, "another backend or reduction is used", describe_collective);
  return by[best];
}

}  // namespace

std::string title(std::string_view collective, int ranks, int servers) {
  return fmt::format("{} on {} ranks, {} server{}", collective, ranks, servers,
                     servers == 1 ? "" : "s");
}

std::optional<CollectiveKind> kind_of(const std::string& word) {
  for (const CollectiveKind kind :
       {CollectiveKind::all_reduce, CollectiveKind::all_gather, CollectiveKind::reduce_scatter,
        CollectiveKind::broadcast, CollectiveKind::all_to_all})
    if (name(kind) == word) return kind;
  return std::nullopt;
}

bool is_virtual(const CollectiveCase& c) {
  return c.backend == "loopback" || c.ranks < 2;
}

void fit_collectives(const Fitting& f) {
  f.unused(f.choose<CollectiveCase>([](const CollectiveCase& c) {
    return !kind_of(c.collective) && c.collective != "send-recv" && !is_virtual(c);
  }),
           "training has no such collective: no law of a profile", describe_collective);
  std::map<Group, std::vector<const Sample*>> groups;
  for (const Sample* sample : f.choose<CollectiveCase>(
           [](const CollectiveCase& c) { return kind_of(c.collective) && !is_virtual(c); }))
    groups[group_of(as<CollectiveCase>(*sample))].push_back(sample);
  for (const auto& [group, all] : groups) {
    const std::vector<const Sample*> samples = best_samples(f, all);
    const auto fitted = fit_messages(f, samples, true, describe_collective);
    if (!fitted) continue;
    const CollectiveCase& c = as<CollectiveCase>(*samples.front());
    const Constants& values = fitted->fit.values;
    cost::CollectiveLaw law;
    law.kind = *kind_of(c.collective);
    law.ranks = c.ranks;
    law.servers = c.servers;
    law.start = Seconds(values[0]);
    law.bandwidth = BytesPerSecond(values[1]);
    law.per_sqrt_MB = Seconds(values[2]);
    law.in_switch = c.in_switch && law.kind == CollectiveKind::all_reduce;
    law.least = fitted->least, law.most = fitted->most;
    law.from = fitted->from;
    f.profile().collectives.push_back(std::move(law));
  }
}

void fit_point_to_point(const Fitting& f) {
  for (const bool same_server : {true, false}) {
    // Send and receive of the library are what pipelines do; copies between devices are next.
    std::vector<const Sample*> sends = f.choose<CollectiveCase>([&](const CollectiveCase& c) {
      return c.collective == "send-recv" && (c.servers == 1) == same_server &&
             c.backend != "loopback";
    });
    const auto peers = [&](const std::string& access) {
      return f.choose<PeerCase>([&](const PeerCase& c) {
        return same_server && c.mode == "alone" && c.access == access && c.from != c.to;
      });
    };
    const std::string group =
        fmt::format("send and receive, {}", same_server ? "one server" : "two servers");
    const auto describe = [&group](const Sample& s, FitRecord& r) {
      r.group = group;
      size_of_record(s, r);
      if (const auto* c = std::get_if<PeerCase>(&s.of))
        r.shape += fmt::format(" {} to {}, {} {}", c->from, c->to, c->access, c->mode);
    };
    std::vector<const Sample*> chosen = sends;
    for (const std::string access : {"peer", "staged"}) {
      const std::vector<const Sample*> copies = peers(access);
      if (chosen.empty()) {
        chosen = copies;
      } else {
        f.unused(copies, "a better measurement is used", describe);
      }
    }
    if (same_server)
      f.unused(
          f.choose<PeerCase>([](const PeerCase& c) { return c.mode != "alone" || c.from == c.to; }),
          "shared links: no law of one message", describe);
    const auto fitted = fit_messages(f, chosen, false, describe);
    if (!fitted) continue;
    cost::PointToPointLaw law;
    law.same_server = same_server;
    law.start = Seconds(fitted->fit.values[0]);
    law.bandwidth = BytesPerSecond(fitted->fit.values[1]);
    law.least = fitted->least, law.most = fitted->most;
    law.from = fitted->from;
    f.profile().point_to_point.push_back(std::move(law));
  }
}

void fit_copies(const Fitting& f) {
  const auto describe = [](const Sample& s, FitRecord& r) {
    const CopyCase& c = as<CopyCase>(s);
    r.group = fmt::format("copy {}{}", c.direction, c.pinned ? " pinned" : " pageable");
    size_of_record(s, r);
  };
  for (const std::string direction : {"h2d", "d2h"}) {
    for (const bool pinned : {true, false}) {
      const auto fitted = fit_messages(f, f.choose<CopyCase>([&](const CopyCase& c) {
        return c.direction == direction && c.pinned == pinned;
      }),
                                       false, describe);
      if (!fitted) continue;
      cost::HostCopyLaw law;
      law.to_device = direction == "h2d";
      law.pinned = pinned;
      law.start = Seconds(fitted->fit.values[0]);
      law.bandwidth = BytesPerSecond(fitted->fit.values[1]);
      law.from = fitted->from;
      f.profile().host_copies.push_back(std::move(law));
    }
  }
  f.unused(f.choose<CopyCase>(
               [](const CopyCase& c) { return c.direction != "h2d" && c.direction != "d2h"; }),
           "no law of a profile", describe);
}

}  // namespace trainyard::fit
