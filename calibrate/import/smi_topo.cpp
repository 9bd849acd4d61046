// The matrix of nvidia-smi topo -m: how GPUs (and NICs, which samples do not know) are connected.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "calibrate/import/line_diagnostics.h"

namespace trainyard::imports {
namespace {

constexpr std::array<std::string_view, 5> kPaths = {"PIX", "PXB", "PHB", "NODE", "SYS"};

// The number behind `prefix`, if that is the whole word: find_number_behind("NV12", "NV") is 12.
std::optional<int> find_number_behind(std::string_view word, std::string_view prefix) {
  if (!word.starts_with(prefix)) return std::nullopt;
  const auto number = find_count(word.substr(prefix.size()));
  return number && *number < 10'000 ? std::optional<int>(static_cast<int>(*number)) : std::nullopt;
}

bool is_device(std::string_view word) {
  return find_number_behind(word, "GPU") || find_number_behind(word, "NIC") ||
         word.find("mlx") != std::string_view::npos || word.find("bnxt") != std::string_view::npos;
}

bool is_cell(std::string_view word) {
  const auto links = find_number_behind(word, "NV");
  return word == "X" || (links && *links > 0) ||
         std::find(kPaths.begin(), kPaths.end(), word) != kPaths.end();
}

class Topology {
 public:
  explicit Topology(Notes& notes) : notes_(notes) {}

  void read(std::string_view text, const std::string& gpu) {
    int number = 0;
    for (const std::string& line : lines_of(text)) {
      ++number;
      const std::vector<std::string> words = words_of(line);
      if (words.empty()) continue;
      if (devices_ == 0 && words.front() == "GPU0" && (words.size() == 1 || !is_cell(words[1])))
        header(number, words);
      else if (devices_ > 0 && find_number_behind(words.front(), "GPU"))
        row(number, words);
    }
    if (devices_ == 0)
      return notes_.error(0, "the file has no matrix that begins with GPU0",
                          "write it with nvidia-smi topo -m");
    if (rows_.size() != gpus_)
      return notes_.error(header_line_, fmt::format("the matrix has {} GPUs across and {} down; is "
                                                    "it cut off?",
                                                    gpus_, rows_.size()));
    if (gpu.empty())
      return notes_.error(0, "nvidia-smi topo does not name the GPUs", "add --gpu NAME");
    if (good_ && symmetric()) write(gpu);
  }

 private:
  void header(int number, const std::vector<std::string>& words) {
    header_line_ = number;
    for (; devices_ < words.size() && is_device(words[devices_]); ++devices_) {
      const auto gpu = find_number_behind(words[devices_], "GPU");
      if (!gpu) continue;
      if (static_cast<std::size_t>(*gpu) != gpus_ || gpus_ != devices_)
        fail(number, fmt::format("GPU{} stands at place {}", *gpu, devices_));
      ++gpus_;
    }
  }

  void row(int number, const std::vector<std::string>& words) {
    const std::size_t index = rows_.size();
    if (words.front() != fmt::format("GPU{}", index))
      fail(number, fmt::format("row GPU{} was expected, not {}", index, shown(words.front())));
    std::vector<std::string> cells;
    for (std::size_t i = 1; i < words.size() && cells.size() < devices_ && is_cell(words[i]); ++i)
      cells.push_back(words[i]);
    if (cells.size() < devices_) {
      const std::size_t at = cells.size() + 1;
      fail(number, at < words.size()
                       ? fmt::format("{} is no connection", shown(words[at]))
                       : fmt::format("the row has {} of {} connections", cells.size(), devices_));
      cells.resize(devices_, "SYS");
    }
    for (std::size_t i = 0; i < gpus_; ++i)
      if ((cells[i] == "X") != (i == index))
        fail(number, fmt::format("X must stand in column {}, and only there", index));
    // Behind the matrix: CPU affinity, NUMA affinity, and the NUMA id of the GPU's memory.
    const std::size_t numa = 1 + devices_ + 1;
    const auto node = numa < words.size() ? find_count(words[numa]) : std::nullopt;
    numa_.push_back(node ? static_cast<int>(std::min<std::int64_t>(*node, 4096)) : -1);
    rows_.push_back(std::move(cells));
  }

  bool symmetric() {
    for (std::size_t i = 0; i < gpus_; ++i)
      for (std::size_t j = 0; j < i; ++j)
        if (rows_[i][j] != rows_[j][i]) {
          fail(header_line_, fmt::format("GPU{} is connected to GPU{} by {}, but back by {}", i, j,
                                         rows_[i][j], rows_[j][i]));
          return false;
        }
    return true;
  }

  void write(const std::string& gpu) {
    json::Value machine =
        machine_sample("nvidia-smi topo -m", std::vector<std::string>(gpus_, gpu));
    json::Value links = json::Value::array(), nvlinks = json::Value::array();
    for (std::size_t i = 0; i < gpus_; ++i) {
      if (numa_[i] >= 0) machine.find("gpus")->items[i].set("numa", json::Value::of(numa_[i]));
      json::Value words = json::Value::array(), counts = json::Value::array();
      for (std::size_t j = 0; j < gpus_; ++j) {
        words.append(json::Value::of(rows_[i][j]));
        counts.append(json::Value::of(find_number_behind(rows_[i][j], "NV").value_or(0)));
      }
      links.append(std::move(words));
      nvlinks.append(std::move(counts));
    }
    machine.set("nvlinks", std::move(nvlinks));
    machine.set("links", std::move(links));
    notes_.add(std::move(machine));
  }

  void fail(int line, std::string message) {
    notes_.error(line, std::move(message));
    good_ = false;
  }

  Notes& notes_;
  int header_line_ = 0;
  std::size_t devices_ = 0,
              gpus_ = 0;  // columns of the matrix, and those of GPUs, which come first
  std::vector<std::vector<std::string>> rows_;
  std::vector<int> numa_;
  bool good_ = true;
};

}  // namespace

Imported import_smi_topo(std::string_view text, const std::string& file,
                         const ImportOptions& options) {
  Imported imported;
  Notes notes(file, imported);
  Topology(notes).read(text, options.gpu);
  return imported;
}

}  // namespace trainyard::imports
