#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "common/rng.h"
#include "metrics/exposition.h"
#include "metrics/meter.h"
#include "metrics/page_client.h"
#include "metrics/page_server.h"
#include "metrics/process.h"

namespace starlane::metrics {
namespace {

TEST(Meter, EveryValueLiesInTheBucketWhoseBoundIsTheNextAbove) {
  const auto right = [](std::uint64_t value) {
    const std::size_t bucket = bucket_of(value);
    return (bucket == kBuckets - 1 || value <= bound_of(bucket)) &&
           (bucket == 0 || value > bound_of(bucket - 1));
  };
  for (std::uint64_t value = 0; value < 100'000; ++value) ASSERT_TRUE(right(value)) << value;
  Rng rng(17);
  for (int i = 0; i < 100'000; ++i) {
    const std::uint64_t value = rng.next() >> (rng.next() % 64);
    ASSERT_TRUE(right(value)) << value;
  }
  for (std::size_t i = 1; i < kBuckets; ++i) ASSERT_GT(bound_of(i), bound_of(i - 1));
}

TEST(Meter, NothingIsLostBetweenThreads) {
  Counter counter;
  Histogram histogram;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      for (std::uint64_t i = 1; i <= 10'000; ++i) counter.add(2), histogram.record(i);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counter.value(), 160'000U);
  EXPECT_EQ(histogram.counted().count(), 80'000U);
  EXPECT_EQ(histogram.counted().sum, 8ULL * 10'000 * 10'001 / 2);
}

TEST(Meter, QuantilesAreRightToHalfOfTheirValue) {
  Histogram histogram;
  for (std::uint64_t i = 1; i <= 100'000; ++i) histogram.record(i);
  for (const double share : {0.01, 0.5, 0.9, 0.99}) {
    const auto found = static_cast<double>(histogram.counted().quantile(share));
    EXPECT_GE(found, share * 100'000);
    EXPECT_LE(found, share * 100'000 * 1.5 + 1);
  }
  EXPECT_EQ(Histogram().counted().quantile(0.99), 0U);
}

TEST(Exposition, IsTheTextThatPrometheusReads) {
  Histogram took;
  took.record(Nanoseconds(1'024));      // exactly a bound: counted in it
  took.record(Nanoseconds(1'025));      // just above
  took.record(std::chrono::hours(10));  // beyond the last
  Exposition page;
  page.counter("starlane_x_total", "How many", 7, {{"kind", "a\"b\\c\n"}});
  page.gauge("starlane_y_bytes", "How full", 1.5);
  page.counter("starlane_x_total", "How many", 8, {{"kind", "other"}});
  page.histogram("starlane_z_seconds", "How long", took.counted(), Unit::seconds);
  const std::string text = page.text();
  const auto has = [&](const char* line) { return text.find(line) != std::string::npos; };
  EXPECT_TRUE(has("# TYPE starlane_x_total counter\n")) << text;
  EXPECT_TRUE(has("starlane_x_total{kind=\"a\\\"b\\\\c\\n\"} 7\n")) << text;
  EXPECT_TRUE(has("starlane_x_total{kind=\"other\"} 8\n")) << text;
  EXPECT_TRUE(has("starlane_y_bytes 1.5\n")) << text;
  EXPECT_TRUE(has("starlane_z_seconds_count 3\n")) << text;
  EXPECT_TRUE(has("le=\"1.024e-06\"} 1\n") || has("le=\"1.0240000000000001e-06\"} 1\n")) << text;
  EXPECT_TRUE(has("le=\"+Inf\"} 3\n")) << text;
  EXPECT_EQ(text.find("# TYPE starlane_x_total"), text.rfind("# TYPE starlane_x_total"));
}

TEST(Exposition, KnowsTheProcess) {
  Exposition page;
  add_process(page);
  const std::string text = page.text();
  const std::size_t at = text.find("\nprocess_resident_memory_bytes ");
  ASSERT_NE(at, std::string::npos);
  EXPECT_GT(std::atof(text.c_str() + at + 31), 1e6);
}

class Pages : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(server_.listen_unix(path_).ok());
    auto where = server_.listen_tcp("0");
    ASSERT_TRUE(where.ok()) << where.status().text();
    tcp_ = *where;
    ASSERT_TRUE(server_.start().ok());
  }
  PageAnswer serve(const PageRequest& request) {
    if (request.path == "/big") return {200, std::string(3'000'000, 'x')};
    if (request.path != "/echo") return {404, "there is no page " + request.path + "\n"};
    const auto said = request.query.find("say");
    if (said == request.query.end()) return {400, "say what?\n"};
    return {200,
            std::string(request.local ? "local " : "far ") + request.method + " " + said->second};
  }
  int raw() const {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.data(), path_.size());
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return fd;
  }

  const std::string path_ = "/tmp/starlane-pages-" + std::to_string(::getpid()) + ".sock";
  PageServer server_{[this](const PageRequest& request) { return serve(request); }};
  std::string tcp_;
};

TEST_F(Pages, AreServedOnBothKindsOfSocket) {
  const std::string odd = "a b&c=d%/é?";
  const std::string target = "/echo?say=" + encoded(odd);
  EXPECT_EQ(*fetch_page({"unix:" + path_, "POST", target}), "local POST " + odd);
  EXPECT_EQ(*fetch_page({tcp_, "GET", target}), "far GET " + odd);
  EXPECT_EQ(fetch_page({tcp_, "GET", "/big"})->size(), 3'000'000U);
  EXPECT_TRUE(tcp_.starts_with("127.0.0.1:")) << tcp_;
  struct stat status {};
  ASSERT_EQ(::stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
}

TEST_F(Pages, RefusalsAreSentences) {
  const auto missing = fetch_page({tcp_, "GET", "/none"});
  EXPECT_EQ(missing.code(), Errc::not_found);
  EXPECT_EQ(missing.status().text(), "there is no page /none");
  EXPECT_EQ(fetch_page({tcp_, "GET", "/echo"}).status().text(), "say what?");
  EXPECT_EQ(fetch_page({"unix:/nowhere", "GET", "/"}).code(), Errc::unavailable);
  PageServer second([](const PageRequest&) { return PageAnswer{}; });
  EXPECT_EQ(second.listen_unix(path_).code(), Errc::exists);
  for (const char* wrong : {"", "x", "70000", ":80", "1.2.3.4:", "127.0.0.1:9x"})
    EXPECT_EQ(second.listen_tcp(wrong).code(), Errc::invalid) << wrong;
}

TEST_F(Pages, APeerThatSaysNothingDelaysNobody) {
  std::vector<int> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(raw());  // more than are served at once
  [[maybe_unused]] const auto n = ::write(silent.back(), "GET", 3);
  EXPECT_TRUE(fetch_page({"unix:" + path_, "GET", "/echo?say=x"}).ok());
  const int garbage = raw();
  const std::string bytes(20'000, '\xff');
  ::send(garbage, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  char answer[64] = {};
  const ssize_t got = ::recv(garbage, answer, sizeof answer - 1, 0);
  EXPECT_TRUE(got == 0 || std::string(answer).starts_with("HTTP/1.1 4")) << got << answer;
  EXPECT_TRUE(fetch_page({"unix:" + path_, "GET", "/echo?say=x"}).ok());
  for (const int fd : silent) ::close(fd);
  ::close(garbage);
}

TEST(PageServer, TakesOverASocketThatADeadProcessLeft) {
  const std::string path = "/tmp/starlane-left-" + std::to_string(::getpid()) + ".sock";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ::close(fd);
  {
    PageServer server([](const PageRequest&) { return PageAnswer{200, "here"}; });
    ASSERT_TRUE(server.listen_unix(path).ok());
    ASSERT_TRUE(server.start().ok());
    EXPECT_EQ(*fetch_page({"unix:" + path}), "here");
  }
  EXPECT_NE(::access(path.c_str(), F_OK), 0);
}

}  // namespace
}  // namespace starlane::metrics
