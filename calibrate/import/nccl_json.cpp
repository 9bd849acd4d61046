#include "calibrate/import/nccl_json.h"

#include <fmt/format.h>

#include "calibrate/import/nccl_rows.h"
#include "sim/json/parse.h"

namespace trainyard::imports {
namespace {

std::string text_of(const json::Value& object, std::string_view key) {
  const json::Value* value = object.find(key);
  return value != nullptr && value->is(json::Kind::string) ? value->text : "";
}

class NcclFile {
 public:
  NcclFile(const ImportOptions& options, Notes& notes) : notes_(notes), rows_(options, notes) {}

  void read(const json::Value& root) {
    const json::Value* results = root.find("results");
    if (results == nullptr || !results->is(json::Kind::array))
      return notes_.error(root.at.line, "the object has no list \"results\"",
                          "was it written by option -J of nccl-tests?");
    NcclTest test;
    test.line = root.at.line;
    read_program(root, test);
    read_devices(root, test);
    if (const json::Value* version = root.find("nccl_version"))
      if (const auto code = json::find_integer(*version); code && *code > 0)
        test.nccl_version = nccl_version_text(*code);
    rows_.begin(std::move(test));
    for (const json::Value& result : results->items)
      read_row(result);
    rows_.finish();
  }

 private:
  void read_program(const json::Value& root, NcclTest& test) {
    const json::Value* args = root.find("args");
    if (args == nullptr || !args->is(json::Kind::array) || args->items.empty()) return;
    const std::optional<std::string> collective = find_collective(args->items.front().text);
    if (!collective) return;
    if (collective->empty())
      notes_.error(args->at.line, fmt::format("samples have no collective for {}",
                                              shown(args->items.front().text)));
    test.collective = *collective;
  }

  void read_devices(const json::Value& root, NcclTest& test) {
    const json::Value* devices = root.find("devices");
    if (devices == nullptr || !devices->is(json::Kind::array)) return;
    for (const json::Value& device : devices->items) {
      NcclRank rank;
      rank.index = static_cast<int>(test.ranks.size());
      if (const json::Value* index = device.find("rank"))
        rank.index = rank_index(json::find_integer(*index).value_or(-1));
      rank.host = text_of(device, "hostname");
      rank.gpu = text_of(device, "device_info");
      if (const json::Value* group = device.find("group"))
        rank.group = static_cast<int>(json::find_integer(*group).value_or(0));
      if (rank.host.empty()) {
        notes_.error(device.at.line, "a device has no hostname");
        continue;
      }
      test.ranks.push_back(std::move(rank));
    }
  }

  void read_row(const json::Value& result) {
    const auto count_of = [&](std::string_view key) -> std::int64_t {
      const json::Value* value = result.find(key);
      return value != nullptr ? json::find_integer(*value).value_or(-1) : -1;
    };
    const std::int64_t bytes = count_of("size"), elements = count_of("count");
    if (bytes < 0 || elements < 0)
      return notes_.error(result.at.line, "a result has no size or no count");
    NcclRow row;
    row.line = result.at.line;
    row.bytes = bytes;
    row.count = elements;
    row.type = text_of(result, "type");
    bool good = true;
    row.out_of_place = figures(result, "out_of_place", good);
    row.in_place = figures(result, "in_place", good);
    if (good) rows_.add(std::move(row));
  }

  std::optional<NcclFigures> figures(const json::Value& result, std::string_view key, bool& good) {
    const json::Value* object = result.find(key);
    if (object == nullptr || object->is(json::Kind::null)) return std::nullopt;
    if (object->find("cpu_time") != nullptr) {
      notes_.error(object->at.line, "the result has the host's time, not that of the operation",
                   "run nccl-tests without --report_cputime");
      good = false;
      return std::nullopt;
    }
    const auto take = [&](std::string_view name, bool may_be_null) {
      const json::Value* value = object->find(name);
      if (may_be_null && (value == nullptr || value->is(json::Kind::null))) return 0.0;
      const auto number = value != nullptr ? json::find_number(*value) : std::nullopt;
      if (number && *number >= 0) return *number;
      notes_.error(object->at.line, fmt::format("\"{}\" of {} is no measurement", name, key));
      good = false;
      return 0.0;
    };
    NcclFigures read;
    read.time_us = take("time", false);
    read.algorithm_bandwidth = take("alg_bw", false);
    read.bus_bandwidth = take("bus_bw", false);
    read.wrong = take("nwrong", true);
    return read;
  }

  Notes& notes_;
  NcclRows rows_;
};

}  // namespace

void read_nccl_json(std::string_view text, const std::string& file, const ImportOptions& options,
                    Imported& imported) {
  Notes notes(file, imported);
  const json::Value root = json::parse_text(text, file, imported.diagnostics);
  if (!imported.ok()) return;
  NcclFile(options, notes).read(root);
  notes.require_samples("results of nccl-tests");
}

}  // namespace trainyard::imports
