// The output of nvbandwidth --json: matrices of bandwidths, by testcase.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "calibrate/import/line_diagnostics.h"
#include "sim/json/parse.h"

namespace trainyard::imports {
namespace {

enum class Meaning {
  to_device,    // one row; from the host to the column's device
  from_device,  // one row; from the column's device to the host
  row_to_column,
  column_to_row,
};

struct Testcase {
  std::string_view name;
  Meaning meaning;
};
// Copies by the copy engines, one at a time. Which way a matrix goes is taken from the code of the
// testcases (testcases_ce.cpp): a read moves data from the column's device to the row's. The arrows
// in the descriptions of some versions point the other way.
constexpr std::array kTestcases = {
    Testcase{"host_to_device_memcpy_ce", Meaning::to_device},
    Testcase{"device_to_host_memcpy_ce", Meaning::from_device},
    Testcase{"device_to_device_memcpy_write_ce", Meaning::row_to_column},
    Testcase{"device_to_device_memcpy_read_ce", Meaning::column_to_row},
};

std::string string_in(const json::Value& object, std::string_view key) {
  const json::Value* value = object.find(key);
  return value != nullptr && value->is(json::Kind::string) ? value->text : "";
}

class BandwidthFile {
 public:
  BandwidthFile(const ImportOptions& options, Notes& notes) : options_(options), notes_(notes) {}

  void read(const json::Value& root) {
    const json::Value* body = root.find("nvbandwidth");
    const json::Value* cases = body != nullptr ? body->find("testcases") : nullptr;
    if (cases == nullptr || !cases->is(json::Kind::array))
      return notes_.error(root.at.line, "the object has no list \"testcases\" in \"nvbandwidth\"",
                          "was it written by nvbandwidth --json?");
    if (options_.gpu.empty())
      return notes_.error(0, "nvbandwidth does not name the GPUs", "add --gpu NAME");
    for (const json::Value& testcase : cases->items)
      read_case(testcase);
    if (samples_.empty()) return;
    const std::string version = string_in(*body, "version");
    json::Value machine = machine_sample("nvbandwidth" + (version.empty() ? "" : " " + version),
                                         std::vector<std::string>(devices_, options_.gpu));
    const std::string driver = string_in(*body, "Driver Version");
    if (!driver.empty()) machine.set("driver", json::Value::of(driver));
    notes_.add(std::move(machine));
    for (json::Value& sample : samples_)
      notes_.add(std::move(sample));
  }

 private:
  void read_case(const json::Value& testcase) {
    const std::string name = string_in(testcase, "name");
    const std::string status = string_in(testcase, "status");
    const auto known = std::find_if(kTestcases.begin(), kTestcases.end(),
                                    [&](const Testcase& entry) { return entry.name == name; });
    if (known == kTestcases.end())
      return notes_.warning(testcase.at.line,
                            fmt::format("testcase {} is left out: only single copies by the copy "
                                        "engines become samples",
                                        shown(name)));
    if (status != "Passed")
      return notes_.warning(
          testcase.at.line,
          fmt::format("testcase {} is left out: its status is {}", shown(name), shown(status)));
    const std::string about = string_in(testcase, "bandwidth_description");
    const json::Value* matrix = testcase.find("bandwidth_matrix");
    if (about.find("(GB/s)") == std::string::npos || matrix == nullptr ||
        !matrix->is(json::Kind::array))
      return notes_.error(testcase.at.line,
                          fmt::format("testcase {} has no matrix in GB/s", shown(name)));
    read_matrix(*matrix, known->meaning);
  }

  void read_matrix(const json::Value& matrix, Meaning meaning) {
    const bool by_host = meaning == Meaning::to_device || meaning == Meaning::from_device;
    const std::size_t columns = matrix.items.empty() ? 0 : matrix.items.front().items.size();
    const bool regular = std::all_of(
        matrix.items.begin(), matrix.items.end(),
        [&](const json::Value& row) { return row.items.size() == columns && columns > 0; });
    if (!regular || matrix.items.size() != (by_host ? 1 : columns))
      return notes_.error(matrix.at.line, by_host ? "the matrix is not one row of numbers"
                                                  : "the matrix is not square");
    if (devices_ != 0 && devices_ != columns)
      return notes_.error(matrix.at.line, fmt::format("the matrix is of {} devices, another of {}",
                                                      columns, devices_));
    devices_ = columns;
    for (std::size_t row = 0; row < matrix.items.size(); ++row)
      for (std::size_t column = 0; column < columns; ++column)
        read_cell(matrix.items[row].items[column], meaning, row, column);
  }

  void read_cell(const json::Value& cell, Meaning meaning, std::size_t row, std::size_t column) {
    const bool by_host = meaning == Meaning::to_device || meaning == Meaning::from_device;
    if (cell.text == "N/A") {
      if (by_host || row != column)
        notes_.warning(cell.at.line, fmt::format("no figure for row {}, column {}", row, column));
      return;
    }
    const bool written = cell.is(json::Kind::string) || cell.is(json::Kind::number);
    const auto bandwidth = written ? find_measure(cell.text) : std::nullopt;
    const auto bytes = options_.buffer.count();
    const double time = static_cast<double>(bytes) / bandwidth.value_or(0) * 1e-3;
    if (!bandwidth || *bandwidth <= 0 || !std::isfinite(time))
      return notes_.error(cell.at.line, fmt::format("{} is no bandwidth", shown(cell.text)));
    json::Value sample = json::Value::object();
    const auto put = [&](std::string_view key, std::size_t value) {
      sample.set(key, json::Value::of(static_cast<std::int64_t>(value)));
    };
    if (by_host) {
      sample.set("kind", json::Value::of("copy"));
      sample.set("direction", json::Value::of(meaning == Meaning::to_device ? "h2d" : "d2h"));
      sample.set("pinned", json::Value::of(true));
      put("gpu", column);
    } else {
      const bool forward = meaning == Meaning::row_to_column;
      sample.set("kind", json::Value::of("p2p"));
      put("from", forward ? row : column);
      put("to", forward ? column : row);
      sample.set("access", json::Value::of("peer"));
      sample.set("mode", json::Value::of("alone"));
    }
    sample.set("bytes", json::Value::of(bytes));
    sample.set("time_us", json::Value::of(time));
    samples_.push_back(std::move(sample));
  }

  const ImportOptions& options_;
  Notes& notes_;
  std::vector<json::Value> samples_;
  std::size_t devices_ = 0;
};

}  // namespace

Imported import_nvbandwidth(std::string_view text, const std::string& file,
                            const ImportOptions& options) {
  Imported imported;
  Notes notes(file, imported);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || text[first] != '{') {
    notes.error(1, "the file is no JSON object", "write it with nvbandwidth --json");
    return imported;
  }
  const json::Value root = json::parse_text(text, file, imported.diagnostics);
  if (!imported.ok()) return imported;
  BandwidthFile(options, notes).read(root);
  notes.require_samples("testcase of nvbandwidth");
  return imported;
}

}  // namespace trainyard::imports
