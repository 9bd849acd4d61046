#include "cli/report/diagnostics_json.h"

#include <nlohmann/json.hpp>

#include "sim/base/version.h"

namespace trainyard::report {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const std::vector<Diagnostic>& list) {
  Json all = Json::array();
  for (const Diagnostic& diagnostic : list) {
    Json& one = all.emplace_back(Json::object());
    one["severity"] = diagnostic.severity == Severity::error ? "error" : "warning";
    if (!diagnostic.at.file.empty()) one["file"] = diagnostic.at.file;
    if (diagnostic.at.line > 0) one["line"] = diagnostic.at.line;
    if (diagnostic.at.line > 0 && diagnostic.at.column > 0) one["column"] = diagnostic.at.column;
    if (!diagnostic.pointer.empty()) one["pointer"] = diagnostic.pointer;
    one["message"] = diagnostic.message;
    if (!diagnostic.hint.empty()) one["hint"] = diagnostic.hint;
  }
  return all;
}

// File names and words of users may be no UTF-8.
std::string written(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string errors_json(const std::vector<Diagnostic>& list) {
  return written({{"trainyard", kVersion}, {"errors", to_json(list)}});
}

std::string checked_json(const std::vector<CheckedFile>& files) {
  Json all = Json::array();
  for (const CheckedFile& file : files)
    all.push_back(
        {{"file", file.path}, {"ok", file.ok}, {"diagnostics", to_json(file.diagnostics)}});
  return written({{"trainyard", kVersion}, {"files", all}});
}

}  // namespace trainyard::report
