#include "cli/watch/page.h"

#include <algorithm>
#include <cstdlib>
#include <set>

namespace starlane::cli {
namespace {

/// name="value", with \\, \" and \n in the value. False: it is none.
bool take_label(std::string_view& rest, Sample& sample) {
  const std::size_t equals = rest.find("=\"");
  if (equals == std::string_view::npos) return false;
  const std::string name(rest.substr(0, equals));
  std::string value;
  std::size_t at = equals + 2;
  for (; at < rest.size() && rest[at] != '"'; ++at) {
    if (rest[at] != '\\' || at + 1 == rest.size()) {
      value += rest[at];
      continue;
    }
    ++at;
    value += rest[at] == 'n' ? '\n' : rest[at];
  }
  if (at >= rest.size()) return false;
  sample.labels[name] = value;
  rest.remove_prefix(at + 1);
  if (!rest.empty() && rest[0] == ',') rest.remove_prefix(1);
  return true;
}

bool parse(std::string_view line, Sample& sample) {
  const std::size_t end = line.find_first_of("{ ");
  if (end == std::string_view::npos || end == 0) return false;
  sample.name = line.substr(0, end);
  line.remove_prefix(end);
  if (line[0] == '{') {
    line.remove_prefix(1);
    while (!line.empty() && line[0] != '}')
      if (!take_label(line, sample)) return false;
    if (line.empty()) return false;
    line.remove_prefix(1);
  }
  const std::string value(line);
  char* after = nullptr;
  sample.value = std::strtod(value.c_str(), &after);
  return after != value.c_str();
}

}  // namespace

Status Page::add(std::string_view text) {
  std::vector<Sample> found;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty() || line[0] == '#') continue;
    if (!parse(line, found.emplace_back()))
      return Status(Errc::corrupt, "not a page of metrics: " + std::string(line));
  }
  samples_.insert(samples_.end(), std::make_move_iterator(found.begin()),
                  std::make_move_iterator(found.end()));
  return {};
}

double Page::sum(std::string_view name, const Labels& with) const {
  double all = 0;
  for (const Sample& sample : samples_)
    if (sample.name == name && std::ranges::includes(sample.labels, with)) all += sample.value;
  return all;
}

std::vector<std::string> Page::values_of(std::string_view name, const std::string& label) const {
  std::set<std::string> values;
  for (const Sample& sample : samples_)
    if (const auto at = sample.labels.find(label); sample.name == name && at != sample.labels.end())
      values.insert(at->second);
  return {values.begin(), values.end()};
}

}  // namespace starlane::cli
