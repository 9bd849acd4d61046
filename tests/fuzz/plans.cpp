// The campaign of random plans.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>

#include "tests/fuzz/campaign.h"
#include "tests/fuzz/child.h"
#include "tests/fuzz/examine.h"
#include "tests/fuzz/files.h"
#include "tests/fuzz/plan.h"
#include "tests/fuzz/shrink.h"

namespace trainyard::fuzz {

namespace fs = std::filesystem;

namespace {

constexpr int kMostAttempts = 40;
constexpr Limits kLimits{.cpu_seconds = 150, .bytes = std::size_t{4} << 30};

// What a child says: "held 3 fits", "refused 40", "broken INVARIANT\nDETAIL".
std::string examined_plan(const Plan& plan, int refused, std::string& why) {
  const Folder folder;
  for (const auto& [name, content] : plan.files)
    write_file(name, content);
  write_file("plan.json", json::to_text(plan.scenario) + "\n");
  const Examined examined = examine("plan.json");
  if (examined.verdict == Verdict::refused) why = examined.finding.detail;
  if (examined.verdict == Verdict::broken)
    return fmt::format("broken {} {}\n{}", refused, examined.finding.invariant,
                       examined.finding.detail);
  return fmt::format("held {} {}", refused, examined.fits ? "fits" : "does not fit");
}

// Where a check of ours failed, or a sanitizer stopped, by file and line.
std::string cause_of(const Ending& ending) {
  for (const char* mark : {": check failed:", ": runtime error:"}) {
    const std::size_t at = ending.streams.find(mark);
    if (at == std::string::npos) continue;
    const std::size_t line = ending.streams.rfind('\n', at);
    const std::size_t begin = line == std::string::npos ? 0 : line + 1;
    const std::string place = ending.streams.substr(begin, at - begin);
    return fs::path(place).filename().string();
  }
  const std::size_t at = ending.streams.find("ERROR: AddressSanitizer: ");
  if (at == std::string::npos) return "";
  return ending.streams.substr(at + 25, ending.streams.find(' ', at + 25) - at - 25);
}

}  // namespace

Finding finding_of(const Ending& ending) {
  if (!ending.died.empty()) {
    const std::string cause = cause_of(ending);
    return {ending.died + (cause.empty() ? "" : " at " + cause), ending.streams.substr(0, 2000)};
  }
  if (!ending.said.starts_with("broken ")) return {};
  const std::size_t name = ending.said.find(' ', 7);
  const std::size_t end = ending.said.find('\n');
  return {ending.said.substr(name + 1, end - name - 1), ending.said.substr(end + 1)};
}

Finding finding_in(const Plan& plan) {
  return finding_of(in_child(kLimits, [&] {
    std::string why;
    return examined_plan(plan, 0, why);
  }));
}

namespace {

// The first plan of the seed that is accepted. `attempt` says in the parent which one it was.
std::string examined_seed(std::uint64_t seed) {
  std::string reasons;
  for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
    std::string why;
    const std::string said = examined_plan(draw_plan(seed, attempt), attempt, why);
    if (why.empty()) return said.starts_with("held") ? said + reasons : said;
    reasons += "\n" + why.substr(0, why.find('\n'));
  }
  return fmt::format("refused {}", kMostAttempts) + reasons;
}

class Plans {
 public:
  explicit Plans(const Campaign& campaign) : campaign_(campaign) {}

  int run() {
    Children children(kLimits);
    int next = 0, done = 0;
    while (next < campaign_.seeds || children.running() > 0) {
      while (next < campaign_.seeds &&
             children.running() < static_cast<std::size_t>(campaign_.jobs)) {
        const std::uint64_t seed = campaign_.first_seed + static_cast<std::uint64_t>(next++);
        children.start(seed, [seed] { return examined_seed(seed); });
      }
      const auto [seed, ending] = children.wait();
      clock_.add(seed, ending.cpu_seconds);
      take(seed, ending);
      tell_progress(campaign_, ++done, findings_);
    }
    const int draws = valid_ + refused_;
    fmt::print(
        "{} plans, {} of {} draws valid ({} %), {} do not fit; {:.0f} s of CPU, the most {:.1f} s "
        "for seed {}; "
        "{} findings\n",
        valid_, valid_, draws, draws == 0 ? 0 : 100 * valid_ / draws, too_large_, clock_.all,
        clock_.most, clock_.slowest, findings_);
    if (2 * valid_ >= draws || campaign_.seeds < 50) return findings_;
    fmt::print("fewer than half of the draws are valid: the generator needs care\n");
    return findings_ + 1;
  }

 private:
  void take(std::uint64_t seed, const Ending& ending) {
    const Finding finding = finding_of(ending);
    if (!finding.invariant.empty()) return report(seed, finding);
    int refused = 0;
    std::sscanf(ending.said.c_str(), "%*s %d", &refused);
    refused_ += refused;
    valid_ += ending.said.starts_with("held");
    if (!campaign_.plans.empty() && ending.said.starts_with("held"))
      keep(draw_plan(seed, refused), fmt::format("{}/{}", campaign_.plans, seed));
    std::istringstream lines(ending.said);
    std::string line;
    std::getline(lines, line);
    too_large_ += line.ends_with("does not fit");
    while (campaign_.reasons && std::getline(lines, line))
      fmt::print("refused {}: {}\n", seed, line);
  }

  static void keep(const Plan& plan, const std::string& folder) {
    fs::create_directories(folder);
    write_file(folder + "/plan.json", json::to_text(plan.scenario) + "\n");
    for (const auto& [name, content] : plan.files)
      write_file(folder + "/" + name, content);
  }

  // Which attempt of the seed it was is found by trying again: a crash cannot say it.
  void report(std::uint64_t seed, const Finding& finding) {
    ++findings_;
    ++valid_;
    fmt::print("finding: {}\n  {}\n  again: ./dev fuzz 1 --seed {}\n", finding.invariant,
               finding.detail, seed);
    std::fflush(stdout);
    for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
      Plan plan = draw_plan(seed, attempt);
      if (finding_in(plan).invariant != finding.invariant) continue;
      if (campaign_.shrink) plan = shrunk(plan, finding.invariant);
      const std::string text = json::to_text(plan.scenario) + "\n";
      fmt::print("{}", text);
      for (const auto& [name, content] : plan.files)
        fmt::print("beside it {}:\n{}", name, content);
      if (!campaign_.keep.empty()) keep(plan, fmt::format("{}/seed-{}", campaign_.keep, seed));
      break;
    }
    std::fflush(stdout);
  }

  const Campaign& campaign_;
  Clock clock_;
  int valid_ = 0, refused_ = 0, too_large_ = 0, findings_ = 0;
};

}  // namespace

int run_plans(const Campaign& campaign) {
  return Plans(campaign).run();
}

namespace {

// Items of lists count as one.
void collect_keys(const json::Value& value, const std::string& at, std::set<std::string>& keys) {
  if (!at.empty()) keys.insert(at);
  for (const json::Member& member : value.members)
    collect_keys(member.value, at + "/" + json::escape_pointer(member.key), keys);
  for (const json::Value& item : value.items)
    collect_keys(item, at + "/*", keys);
}

}  // namespace

void print_keys(int plans) {
  std::set<std::string> keys;
  for (int seed = 1; seed <= plans; ++seed)
    collect_keys(draw_plan(static_cast<std::uint64_t>(seed), 0).scenario, "", keys);
  for (const std::string& key : keys)
    fmt::print("{}\n", key);
}

int replay(const std::string& path) {
  std::vector<fs::path> files;
  if (fs::is_directory(path)) {
    for (const fs::directory_entry& entry : fs::directory_iterator(path))
      if (entry.path().extension() == ".json") files.push_back(fs::absolute(entry.path()));
  } else {
    files.push_back(fs::absolute(path));
  }
  std::sort(files.begin(), files.end());
  int findings = 0, refused = 0;
  for (const fs::path& file : files) {
    const Ending ending = in_child(kLimits, [&]() -> std::string {
      const Folder folder;
      fs::copy_file(file, "plan.json");
      const Examined examined = examine("plan.json");
      if (examined.verdict == Verdict::held) return "held 0 fits";
      if (examined.verdict == Verdict::refused) return "held 0 refused";
      return fmt::format("broken 0 {}\n{}", examined.finding.invariant, examined.finding.detail);
    });
    const Finding finding = finding_of(ending);
    refused += ending.said == "held 0 refused";
    if (finding.invariant.empty()) continue;
    ++findings;
    fmt::print("{}: {}\n  {}\n", file.filename().string(), finding.invariant, finding.detail);
  }
  fmt::print("{} files, {} refused; {} findings\n", files.size(), refused, findings);
  return findings;
}

}  // namespace trainyard::fuzz
