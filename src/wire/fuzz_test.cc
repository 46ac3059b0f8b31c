// What a site's directory says of it, fuzzed (common/fuzz.h): site.json, and values out of JSON
// that somebody else wrote.
#include "common/fuzz.h"

#include "wire/json_value.h"
#include "wire/site.h"

namespace starlane::wire {
namespace {

namespace fs = std::filesystem;

class SiteFile {
 public:
  SiteFile() {
    char name[] = "/tmp/starlane-site-XXXXXX";
    directory_ = ::mkdtemp(name);
  }
  ~SiteFile() {
    std::error_code ignored;
    fs::remove_all(directory_, ignored);
  }
  const fs::path& directory() const { return directory_; }
  void write(std::string_view text) const {
    std::ofstream(directory_ / "site.json", std::ios::binary) << text;
  }

 private:
  fs::path directory_;
};

TEST(Fuzz, TheIdentityOfASite) {
  Fuzz fuzz("wire-site");
  const SiteFile file;
  ASSERT_TRUE(Site::open_or_create(file.directory()).ok());
  std::ifstream made(file.directory() / "site.json");
  fuzz.add(std::string(std::istreambuf_iterator<char>(made), {}));
  fuzz.run([&](ByteSpan bytes) {
    file.write(text_of(bytes));
    const auto site = Site::open(file.directory());
    if (!taken(site)) return false;
    EXPECT_EQ(site->cluster().find('/'), std::string::npos);
    EXPECT_LE(site->endpoint("meta").size(), 108u);
    return true;
  });
}

template <typename T>
bool is_there(const nlohmann::json& json, T one, T other) {
  return value_in(json, "key", one) == value_in(json, "key", other);
}

TEST(Fuzz, ValuesOfJson) {
  Fuzz fuzz("wire-json");
  for (const char* text : {R"({"key": "text"})", R"({"key": 12, "other": [1, 2]})",
                           R"({"key": -5})", R"({"key": true})", R"({"key": {"key": null}})",
                           R"({"key": 18446744073709551615})", R"([1, "key"])"})
    fuzz.add(std::string_view(text));
  fuzz.run([](ByteSpan bytes) {
    const auto json = nlohmann::json::parse(text_of(bytes), nullptr, false);
    const bool text = is_there<std::string>(json, "one", "other"),
               truth = is_there(json, true, false);
    const bool numbers[] = {is_there(json, 1, 2), is_there(json, 1u, 2u),
                            is_there(json, std::uint64_t{1}, std::uint64_t{2}),
                            is_there(json, std::int64_t{1}, std::int64_t{2})};
    const bool number = std::ranges::count(numbers, true) != 0;
    EXPECT_LE(text + truth + number, 1)
        << json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    // It reads as itself.
    if (numbers[2]) {
      EXPECT_EQ(value_in(json, "key", std::uint64_t{1}), json["key"].get<std::uint64_t>());
    }
    if (numbers[3]) {
      EXPECT_EQ(value_in(json, "key", std::int64_t{1}), json["key"].get<std::int64_t>());
    }
    return text || truth || number;
  });
}

}  // namespace
}  // namespace starlane::wire
