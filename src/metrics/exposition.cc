#include "metrics/exposition.h"

#include <prometheus/client_metric.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>

namespace starlane::metrics {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricType;

// Durations below 1 us and above a minute are of no interest apart.
constexpr std::size_t kFirstOctave = 10;
constexpr std::size_t kLastOctave = 36;

/// One bound an octave, from what two buckets an octave hold.
ClientMetric::Histogram shown(const Counted& counted, Unit unit) {
  const double scale = unit == Unit::seconds ? 1e-9 : 1;
  const std::size_t first = unit == Unit::seconds ? kFirstOctave : 0;
  const std::size_t last = unit == Unit::seconds ? kLastOctave : 20;
  ClientMetric::Histogram out;
  std::size_t bucket = 0;
  std::uint64_t below = 0;
  for (std::size_t octave = first; octave <= last; ++octave) {
    const std::uint64_t bound = std::uint64_t{1} << octave;
    while (bucket < kBuckets - 1 && bound_of(bucket) <= bound) below += counted.buckets[bucket++];
    out.bucket.push_back({below, static_cast<double>(bound) * scale});
  }
  out.sample_count = counted.count();
  out.sample_sum = static_cast<double>(counted.sum) * scale;
  return out;
}

}  // namespace

struct Exposition::Families {
  std::vector<prometheus::MetricFamily> all;

  ClientMetric& add(const std::string& name, const std::string& help, MetricType type,
                    const Labels& labels) {
    auto family = std::ranges::find(all, name, &prometheus::MetricFamily::name);
    if (family == all.end()) family = all.insert(all.end(), {name, help, type, {}});
    ClientMetric& metric = family->metric.emplace_back();
    for (const auto& [key, value] : labels) metric.label.push_back({key, value});
    return metric;
  }
};

Exposition::Exposition() : families_(std::make_unique<Families>()) {}
Exposition::~Exposition() = default;

void Exposition::counter(const std::string& name, const std::string& help, std::uint64_t value,
                         const Labels& labels) {
  counter_seconds(name, help, static_cast<double>(value), labels);
}

void Exposition::counter_seconds(const std::string& name, const std::string& help, double value,
                                 const Labels& labels) {
  families_->add(name, help, MetricType::Counter, labels).counter.value = value;
}

void Exposition::gauge(const std::string& name, const std::string& help, double value,
                       const Labels& labels) {
  families_->add(name, help, MetricType::Gauge, labels).gauge.value = value;
}

void Exposition::histogram(const std::string& name, const std::string& help, const Counted& counted,
                           Unit unit, const Labels& labels) {
  families_->add(name, help, MetricType::Histogram, labels).histogram = shown(counted, unit);
}

std::string Exposition::text() const {
  return prometheus::TextSerializer().Serialize(families_->all);
}

}  // namespace starlane::metrics
