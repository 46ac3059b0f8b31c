// A page of metrics as a command reads it: the values of the Prometheus text format, from one
// process or from several together. Values; one thread.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace starlane::cli {

struct Sample {
  std::string name;
  std::map<std::string, std::string> labels;
  double value = 0;
};

class Page {
 public:
  /// Adds what a process served. corrupt: not the text format; nothing is added then.
  Status add(std::string_view text);

  using Labels = std::map<std::string, std::string>;
  /// Of all samples of this name that carry these labels; 0 when there is none.
  double sum(std::string_view name, const Labels& with = {}) const;
  /// The values that a label of these samples has.
  std::vector<std::string> values_of(std::string_view name, const std::string& label) const;
  bool empty() const { return samples_.empty(); }

 private:
  std::vector<Sample> samples_;
};

}  // namespace starlane::cli
