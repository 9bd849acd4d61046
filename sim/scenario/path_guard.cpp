#include "sim/scenario/path_guard.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "sim/json/reader.h"

namespace trainyard::scenario {

namespace {

namespace fs = std::filesystem;
using json::Kind;
using json::Value;

// Absolute and without links, as far as the path exists. The empty path is the working folder.
fs::path real(const fs::path& path) {
  std::error_code code;
  return fs::weakly_canonical(fs::absolute(path.empty() ? "." : path, code), code);
}

// The nearest folder upwards that holds presets/, models/ or configs/, else the folder itself.
fs::path root_of(const fs::path& folder) {
  std::error_code code;
  for (fs::path at = folder; !at.empty(); at = at.parent_path()) {
    for (const char* mark : {"presets", "models", "configs"}) {
      if (fs::is_directory(at / mark, code)) return at;
    }
    if (at == at.root_path()) break;
  }
  return folder;
}

// Requires: real() of both.
bool is_inside(const fs::path& path, const fs::path& folder) {
  const fs::path inside = path.lexically_relative(folder);
  return !inside.empty() && *inside.begin() != "..";
}

// The folder at which a relative path begins.
fs::path folder_of_writer(const Value& value) {
  const std::string writer = value.at.position().file;
  return is_file(writer) ? fs::path(writer).parent_path() : fs::path();
}

// What no path of a scenario is; empty if it may be one.
std::string no_path(const std::string& path) {
  if (path.empty()) return "the path is empty";
  if (path.find('\\') != std::string::npos) return "paths are written with /, not with a backslash";
  if (path[0] == '~' || path.find('$') != std::string::npos) return "paths are not expanded";
  if (path.find("://") != std::string::npos) return "nothing is fetched from the network";
  return {};
}

struct Refusal {
  std::string message, cure;
};

// Why a file is not read; an empty message: it may be.
Refusal refusal_of(const Value& value, const fs::path& folder, const fs::path& path,
                   const std::string& root) {
  const fs::path own = root_of(real(folder)), target = real(path);
  const bool is_absolute = value.text[0] == '/';
  if (!root.empty() && is_inside(target, real(root))) return {};
  const std::string relative = target.lexically_relative(real(folder)).string();
  if (is_inside(target, own)) {
    if (!is_absolute) return {};
    return {fmt::format("{}: only relative paths are read", json::quoted(value)),
            fmt::format("write \"{}\"", relative)};
  }
  const std::string allow = fmt::format("copy the file into {}, or allow it with --root {}",
                                        own.string(), target.parent_path().string());
  if (is_absolute)
    return {fmt::format("{}: only relative paths are read", json::quoted(value)), allow};
  const bool is_link = is_inside((real(folder) / value.text).lexically_normal(), own);
  return {fmt::format("{} {}leaves the scenario's root, {}", json::quoted(value),
                      is_link ? "is a link that " : "", own.string()),
          allow};
}

}  // namespace

std::string resolve_path(const Value& value, const std::string& pointer, const std::string& root,
                         std::vector<Diagnostic>& diagnostics) {
  const auto refuse = [&](std::string message, std::string cure = {}) {
    diagnostics.push_back(
        {Severity::error, value.at.position(), pointer, std::move(message), std::move(cure)});
    return std::string();
  };
  if (!value.is(Kind::string))
    return refuse(fmt::format("expected the path of a file, got {}", json::quoted(value)));
  if (const std::string why = no_path(value.text); !why.empty())
    return refuse(fmt::format("{}: {}", json::quoted(value), why));
  const fs::path folder = folder_of_writer(value);
  const fs::path path = (folder / value.text).lexically_normal();
  Refusal refused = refusal_of(value, folder, path, root);
  if (!refused.message.empty()) return refuse(std::move(refused.message), std::move(refused.cure));
  if (!is_file(path.string()))
    return refuse(fmt::format("{} was not found in {}", json::quoted(value),
                              folder.empty() ? "." : folder.string()),
                  "a path begins at the folder of the file that names it, with --set at the "
                  "working folder");
  return path.string();
}

bool names_file(const Value& value) {
  return is_file((folder_of_writer(value) / value.text).string());
}

bool preset_stays(const std::string& path, const Value& name, const std::string& pointer,
                  const Places& places, std::vector<Diagnostic>& diagnostics) {
  const fs::path target = real(path);
  for (const std::string& folder : {places.configs, shipped_configs(), places.root})
    if (!folder.empty() && is_inside(target, real(folder))) return true;
  diagnostics.push_back(
      {Severity::error, name.at.position(), pointer,
       fmt::format("{}: {} is a link that leaves its configs folder", json::quoted(name), path),
       fmt::format("copy the file there, or allow it with --root {}",
                   target.parent_path().string())});
  return false;
}

}  // namespace trainyard::scenario
