// A page of figures in the Prometheus text format: values are added with their names and labels,
// once for each page. A name keeps its help and kind from its first value. One thread;
// prometheus-cpp stays behind it.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "metrics/meter.h"

namespace starlane::metrics {

using Labels = std::vector<std::pair<std::string, std::string>>;

/// What the values of a histogram are: durations are recorded in nanoseconds and shown in seconds.
enum class Unit : std::uint8_t { seconds, plain };

class Exposition {
 public:
  Exposition();
  ~Exposition();
  Exposition(const Exposition&) = delete;
  Exposition& operator=(const Exposition&) = delete;

  /// Only grows; the name ends with _total.
  void counter(const std::string& name, const std::string& help, std::uint64_t value,
               const Labels& labels = {});
  void counter_seconds(const std::string& name, const std::string& help, double value,
                       const Labels& labels = {});
  void gauge(const std::string& name, const std::string& help, double value,
             const Labels& labels = {});
  void histogram(const std::string& name, const std::string& help, const Counted& counted,
                 Unit unit, const Labels& labels = {});

  std::string text() const;

 private:
  struct Families;
  const std::unique_ptr<Families> families_;
};

}  // namespace starlane::metrics
