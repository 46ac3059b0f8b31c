// What a file or another process says in JSON, where it may be missing, or damaged, or of another
// type than ours: nothing here throws. Pure; any thread.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <utility>

namespace starlane::wire {

/// The value under `key`, if `json` is an object and it is a T there: a text, a truth value or a
/// whole number within T's limits.
template <typename T>
T value_in(const nlohmann::json& json, const char* key, T otherwise) {
  const auto at = json.is_object() ? json.find(key) : json.end();
  if (at == json.end()) return otherwise;
  if constexpr (std::is_same_v<T, std::string>) {
    return at->is_string() ? at->template get<std::string>() : otherwise;
  } else if constexpr (std::is_same_v<T, bool>) {
    return at->is_boolean() ? at->template get<bool>() : otherwise;
  } else {
    static_assert(std::is_integral_v<T>);
    const auto fits = [](auto number) { return std::in_range<T>(number); };
    if (at->is_number_unsigned()) {
      const auto number = at->template get<std::uint64_t>();
      return fits(number) ? static_cast<T>(number) : otherwise;
    }
    if (!at->is_number_integer()) return otherwise;
    const auto number = at->template get<std::int64_t>();
    return fits(number) ? static_cast<T>(number) : otherwise;
  }
}

}  // namespace starlane::wire
