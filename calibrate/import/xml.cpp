#include "calibrate/import/xml.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/property_tree/ptree.hpp>
#include <boost/property_tree/xml_parser.hpp>
#include <cctype>
#include <sstream>

namespace trainyard::imports {
namespace {

using boost::property_tree::ptree;

// The parser calls itself once per level, and a level takes a '<' at the least.
constexpr std::ptrdiff_t kMostTags = 4096;
constexpr std::size_t kMostBytes = std::size_t{1} << 20;
constexpr int kDeepest = 32;

int line_of(std::string_view text, std::size_t at) {
  return 1 + static_cast<int>(
                 std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
}

// Where the tag or comment that begins at `at` ends. A '>' in quotes does not end a tag.
std::size_t behind_markup(std::string_view text, std::size_t at) {
  for (const auto& [begin, end] :
       {std::pair<std::string_view, std::string_view>{"<!--", "-->"}, {"<?", "?>"}}) {
    if (!text.substr(at).starts_with(begin)) continue;
    const std::size_t found = text.find(end, at + begin.size());
    return found == std::string_view::npos ? text.size() : found + end.size();
  }
  char quote = 0;
  for (; at < text.size(); ++at) {
    if (quote != 0)
      quote = text[at] == quote ? 0 : quote;
    else if (text[at] == '"' || text[at] == '\'')
      quote = text[at];
    else if (text[at] == '>')
      return at + 1;
  }
  return text.size();
}

// Lines of the elements in the order in which they begin; the parser does not keep them.
std::vector<int> lines_of_elements(std::string_view text) {
  std::vector<int> lines;
  int line = 1;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t next = std::min(text.find('<', at), text.size());
    line += static_cast<int>(std::count(text.begin() + static_cast<std::ptrdiff_t>(at),
                                        text.begin() + static_cast<std::ptrdiff_t>(next), '\n'));
    if (next == text.size()) break;
    const char first = next + 1 < text.size() ? text[next + 1] : ' ';
    if (first != '/' && first != '!' && first != '?') lines.push_back(line);
    at = behind_markup(text, next);
    line += static_cast<int>(std::count(text.begin() + static_cast<std::ptrdiff_t>(next),
                                        text.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
  }
  return lines;
}

class TreeReader {
 public:
  TreeReader(std::vector<int> lines, Notes& notes) : lines_(std::move(lines)), notes_(notes) {}

  std::optional<XmlElement> read(const ptree& document) {
    std::vector<XmlElement> roots = children_of(document, 0);
    if (deep_) return std::nullopt;
    if (next_ != lines_.size()) {
      notes_.error(0, "the file is no XML whose tags can be told apart");
    } else if (roots.size() != 1) {
      notes_.error(roots.size() > 1 ? roots[1].line : 0,
                   fmt::format("the file has {} outermost elements, XML has one", roots.size()));
    } else {
      return std::move(roots.front());
    }
    return std::nullopt;
  }

 private:
  std::vector<XmlElement> children_of(const ptree& node, int depth) {
    std::vector<XmlElement> children;
    for (const auto& [name, child] : node) {
      if (name.starts_with('<') || deep_) continue;
      XmlElement element;
      element.name = name;
      element.line = next_ < lines_.size() ? lines_[next_] : 0;
      ++next_;
      if (depth == kDeepest) {
        notes_.error(element.line, fmt::format("elements are nested more than {} deep", kDeepest));
        deep_ = true;
        break;
      }
      if (const auto attributes = child.get_child_optional("<xmlattr>"))
        for (const auto& [key, value] : *attributes)
          element.attributes.emplace_back(key, value.data());
      element.children = children_of(child, depth + 1);
      children.push_back(std::move(element));
    }
    return children;
  }

  std::vector<int> lines_;
  Notes& notes_;
  std::size_t next_ = 0;
  bool deep_ = false;
};

// What is not read, before the parser sees it; false after an error.
bool is_plain(std::string_view text, Notes& notes) {
  const auto fail = [&](std::size_t at, std::string message) {
    notes.error(line_of(text, at), std::move(message));
    return false;
  };
  if (text.size() > kMostBytes) return fail(0, "the file is larger than 1 MiB");
  if (const std::size_t at = text.find('\0'); at != std::string_view::npos)
    return fail(at, "a byte of the file is 0");
  if (!is_utf8(text)) return fail(0, "the file is not UTF-8");
  if (std::count(text.begin(), text.end(), '<') > kMostTags)
    return fail(0, fmt::format("the file has more than {} tags", kMostTags));
  for (const char* mark : {"<!DOCTYPE", "<!ENTITY", "<![CDATA["})
    if (const std::size_t at = text.find(mark); at != std::string_view::npos)
      return fail(at, fmt::format("{} is not read: descriptions of servers have none", mark));
  return true;
}

}  // namespace

std::string_view XmlElement::attribute(std::string_view key) const {
  for (const auto& [own, value] : attributes)
    if (own == key) return value;
  return {};
}

std::optional<XmlElement> read_xml(std::string_view text, Notes& notes) {
  namespace parser = boost::property_tree::xml_parser;
  if (!is_plain(text, notes)) return std::nullopt;
  ptree document;
  try {
    std::istringstream stream{std::string(text)};
    parser::read_xml(stream, document, parser::no_comments | parser::trim_whitespace);
  } catch (const parser::xml_parser_error& error) {
    notes.error(static_cast<int>(error.line()),
                fmt::format("the file is no whole XML: {}", error.message()), "is it cut off?");
    return std::nullopt;
  }
  return TreeReader(lines_of_elements(text), notes).read(document);
}

}  // namespace trainyard::imports
