// The matrix of nvidia-smi topo -m: how GPUs and NICs are connected.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "calibrate/import/line_diagnostics.h"
#include "calibrate/import/machine_facts.h"

namespace trainyard::imports {
namespace {

// From near to far. PSB and SOC are words of older drivers.
constexpr std::array<std::string_view, 5> kPaths = {"PIX", "PXB", "PHB", "NODE", "SYS"};
// Cells of nvidia-smi topo -p2p.
constexpr std::array<std::string_view, 7> kAccess = {"OK", "CNS", "GNS", "TNS", "NS", "DR", "U"};
constexpr std::size_t kMostDevices = 1024;

// The number behind `prefix`, if that is the whole word: find_number_behind("NV12", "NV") is 12.
std::optional<int> find_number_behind(std::string_view word, std::string_view prefix) {
  if (!word.starts_with(prefix)) return std::nullopt;
  const auto number = find_count(word.substr(prefix.size()));
  return number && *number < 10'000 ? std::optional<int>(static_cast<int>(*number)) : std::nullopt;
}

std::string today(const std::string& word) {
  return word == "SOC" ? "SYS" : word == "PSB" ? "PIX" : word;
}

std::size_t distance(const std::string& word) {
  return static_cast<std::size_t>(std::find(kPaths.begin(), kPaths.end(), word) - kPaths.begin());
}

bool is_cell(std::string_view word) {
  const auto links = find_number_behind(word, "NV");
  return word == "X" || (links && *links > 0) ||
         std::find(kPaths.begin(), kPaths.end(), today(std::string(word))) != kPaths.end();
}

bool is_access(std::string_view word) {
  return std::find(kAccess.begin(), kAccess.end(), word) != kAccess.end();
}

// Fields between tabs, without the blanks around them.
std::vector<std::string> fields_of(std::string_view line) {
  std::vector<std::string> fields;
  for (std::size_t begin = 0; begin <= line.size();) {
    const std::size_t end = std::min(line.find('\t', begin), line.size());
    fields.push_back(fmt::format("{}", fmt::join(words_of(line.substr(begin, end - begin)), " ")));
    begin = end + 1;
  }
  return fields;
}

// Sets of devices that are joined step by step.
class Groups {
 public:
  explicit Groups(std::size_t count) : of_(count) {
    for (std::size_t i = 0; i < count; ++i)
      of_[i] = i;
  }
  void join(std::size_t a, std::size_t b) {
    const std::size_t from = std::max(of_[a], of_[b]), to = std::min(of_[a], of_[b]);
    std::replace(of_.begin(), of_.end(), from, to);
  }
  std::size_t of(std::size_t i) const { return of_[i]; }
  int count() const {
    return static_cast<int>(std::set<std::size_t>(of_.begin(), of_.end()).size());
  }

 private:
  std::vector<std::size_t> of_;
};

class Topology {
 public:
  Topology(Notes& notes, bool for_preset) : notes_(notes), for_preset_(for_preset) {}

  void read(std::string_view text, const std::string& gpu) {
    int number = 0;
    for (const std::string& line : lines_of(text)) {
      ++number;
      const std::vector<std::string> words = words_of(line);
      if (words.empty() || refused_) continue;
      if (devices_.empty() && words.front() == "GPU0" && (words.size() == 1 || !is_cell(words[1])))
        header(number, line, words);
      else if (!devices_.empty() && find_number_behind(words.front(), "GPU"))
        row(number, line, words);
      else if (words.size() == 2 && words.front().ends_with(':'))
        name_nic(words.front().substr(0, words.front().size() - 1), words[1]);
    }
    if (refused_) return;
    if (devices_.empty())
      return notes_.error(0, "the file has no matrix that begins with GPU0",
                          "write it with nvidia-smi topo -m");
    if (rows_.size() != gpus_)
      return notes_.error(header_line_, fmt::format("the matrix has {} GPUs across and {} down; is "
                                                    "it cut off?",
                                                    gpus_, rows_.size()));
    if (gpu.empty() && !for_preset_)
      return notes_.error(0, "nvidia-smi topo does not name the GPUs", "add --gpu NAME");
    if (good_ && symmetric()) write(gpu);
  }

 private:
  // The devices stand before the columns "CPU Affinity", "NUMA Affinity", "GPU NUMA ID", all of
  // which may be missing.
  void header(int number, const std::string& line, const std::vector<std::string>& words) {
    header_line_ = number;
    for (const std::string& word : words) {
      if (word == "CPU" || word == "NUMA" || word == "GPU") break;
      if (devices_.size() == kMostDevices) return refuse(number, "the matrix is too wide");
      devices_.push_back(word);
      const auto gpu = find_number_behind(word, "GPU");
      if (!gpu) continue;
      if (static_cast<std::size_t>(*gpu) != gpus_ || gpus_ + 1 != devices_.size())
        fail(number, fmt::format("GPU{} stands at place {}", *gpu, devices_.size() - 1));
      ++gpus_;
    }
    names_ = devices_;
    const std::size_t numa = line.find("NUMA Affinity");
    has_numa_ = numa != std::string::npos && line.find("CPU Affinity") < numa;
    affinity_column_ = line.find("CPU Affinity");
  }

  void row(int number, const std::string& line, const std::vector<std::string>& words) {
    if (words.size() > 1 && std::any_of(words.begin() + 1, words.end(), is_access))
      return refuse(number,
                    "this is a matrix of nvidia-smi topo -p2p: which GPUs may reach each other, "
                    "not how");
    const std::size_t index = rows_.size();
    if (words.front() != fmt::format("GPU{}", index))
      fail(number, fmt::format("row GPU{} was expected, not {}", index, shown(words.front())));
    std::vector<std::string> cells;
    for (std::size_t i = 1; i < words.size() && cells.size() < devices_.size() && is_cell(words[i]);
         ++i)
      cells.push_back(today(words[i]));
    if (cells.size() < devices_.size()) {
      const std::size_t at = cells.size() + 1;
      fail(number, at < words.size() ? fmt::format("{} is no connection", shown(words[at]))
                                     : fmt::format("the row has {} of {} connections", cells.size(),
                                                   devices_.size()));
      cells.resize(devices_.size(), "SYS");
    } else {
      for (std::size_t i = 0; i < devices_.size(); ++i)
        if ((cells[i] == "X") != (i == index))
          fail(number, fmt::format("X must stand in column {}, and only there", index));
    }
    numa_.push_back(has_numa_ && good_ ? numa_of(line, words) : -1);
    rows_.push_back(std::move(cells));
  }

  // Behind the matrix stand CPU affinity, which may be empty, NUMA affinity, and the NUMA id of the
  // GPU's memory. Fields are told apart by tabs, or where these were expanded by the column.
  int numa_of(const std::string& line, const std::vector<std::string>& words) const {
    const std::size_t affinity = 1 + devices_.size();
    std::string word;
    if (line.find('\t') != std::string::npos) {
      const std::vector<std::string> fields = fields_of(line);
      if (affinity + 1 < fields.size()) word = fields[affinity + 1];
    } else if (affinity < words.size()) {
      const std::string& first = words[affinity];
      const bool is_list = first.find_first_not_of("0123456789") != std::string::npos;
      const std::size_t column = column_of(line, affinity);
      const bool is_empty = !is_list && column > affinity_column_ + 2;
      if (is_empty || affinity + 1 < words.size()) word = words[affinity + (is_empty ? 0 : 1)];
    }
    const auto node = find_count(word);
    return node ? static_cast<int>(std::min<std::int64_t>(*node, 4096)) : -1;
  }

  static std::size_t column_of(const std::string& line, std::size_t word) {
    std::size_t at = line.find_first_not_of(' ');
    for (; word > 0; --word)
      at = line.find_first_not_of(' ', line.find(' ', at));
    return at;
  }

  void name_nic(const std::string& device, const std::string& name) {
    const auto found = std::find(devices_.begin(), devices_.end(), device);
    if (found != devices_.end() && is_utf8(name))
      names_[static_cast<std::size_t>(found - devices_.begin())] = name;
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
    MachineFacts facts;
    facts.probe = "nvidia-smi topo -m";
    for (std::size_t i = 0; i < gpus_; ++i) {
      GpuFacts& one = facts.gpus.emplace_back();
      one.name = gpu;
      one.numa = numa_[i];
      facts.words.emplace_back(rows_[i].begin(), rows_[i].begin() + static_cast<int>(gpus_));
      std::vector<int>& links = facts.nvlinks.emplace_back();
      for (std::size_t j = 0; j < gpus_; ++j)
        links.push_back(find_number_behind(rows_[i][j], "NV").value_or(0));
    }
    find_switches(facts);
    find_nics(facts);
    facts.sockets = sockets();
    if (for_preset_) warn_of_uneven(facts, notes_);
    notes_.add(machine_line(facts));
  }

  // PIX and PXB stay below the host bridge. NVLink hides how two GPUs are joined by PCIe, but not
  // that both are near one NIC.
  void find_switches(MachineFacts& facts) const {
    Groups groups(devices_.size());
    bool said = false;
    for (std::size_t i = 0; i < gpus_; ++i)
      for (std::size_t j = 0; j < devices_.size(); ++j)
        if (rows_[i][j] == "PIX" || rows_[i][j] == "PXB") {
          said = true;
          groups.join(i, j);
        }
    for (std::size_t i = 0; i < gpus_ && said; ++i)
      facts.gpus[i].pcie_switch = static_cast<int>(groups.of(i));
  }

  void find_nics(MachineFacts& facts) const {
    for (std::size_t j = gpus_; j < devices_.size(); ++j)
      facts.nics.emplace_back().name = names_[j];
    for (std::size_t i = 0; i < gpus_ && devices_.size() > gpus_; ++i) {
      const auto begin = rows_[i].begin() + static_cast<int>(gpus_);
      const std::size_t least = distance(*std::min_element(
          begin, rows_[i].end(),
          [](const std::string& a, const std::string& b) { return distance(a) < distance(b); }));
      for (std::size_t j = gpus_; j < devices_.size(); ++j)
        if (distance(rows_[i][j]) == least)
          facts.nics[j - gpus_].gpus.push_back(static_cast<int>(i));
    }
  }

  // NUMA nodes; where they are not said, what SYS keeps apart. 0: NVLink hides all.
  int sockets() const {
    const std::set<int> nodes(numa_.begin(), numa_.end());
    if (nodes.count(-1) == 0) return static_cast<int>(nodes.size());
    Groups groups(gpus_);
    bool said = false;
    for (std::size_t i = 0; i < gpus_; ++i)
      for (std::size_t j = 0; j < i; ++j) {
        said = said || !rows_[i][j].starts_with("NV");
        if (rows_[i][j] != "SYS") groups.join(i, j);
      }
    return said ? groups.count() : 0;
  }

  void fail(int line, std::string message) {
    notes_.error(line, std::move(message));
    good_ = false;
  }

  void refuse(int line, std::string message) {
    notes_.error(line, std::move(message), "write it with nvidia-smi topo -m");
    refused_ = true;
  }

  Notes& notes_;
  bool for_preset_;
  int header_line_ = 0;
  std::vector<std::string> devices_;  // columns of the matrix, GPUs first
  std::vector<std::string> names_;    // of the devices, by the legend
  std::size_t gpus_ = 0;
  std::size_t affinity_column_ = 0;
  bool has_numa_ = false;
  std::vector<std::vector<std::string>> rows_;  // of the GPUs
  std::vector<int> numa_;
  bool good_ = true, refused_ = false;
};

}  // namespace

Imported import_smi_topo(std::string_view text, const std::string& file,
                         const ImportOptions& options) {
  Imported imported;
  Notes notes(file, imported);
  Topology(notes, options.for_preset).read(text, options.gpu);
  return imported;
}

}  // namespace trainyard::imports
