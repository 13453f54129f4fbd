// What the benches share: pinning, the clock, medians, and a table that people or programs read.
//
// Every figure here is a ratio of two things measured in turns in one run, so that a slow or busy
// machine slows both.
//
// Thread: one thread at a time.

#ifndef STICKY_BENCH_BENCH_UTIL_H_
#define STICKY_BENCH_BENCH_UTIL_H_

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sched.h>

#include "base/deadline.h"

namespace sticky::bench {

// Ends the program with what was being done, and errno's text.
[[noreturn]] inline void Die(const char* what) {
  std::perror(what);
  std::exit(1);
}

// Keeps this process and its later children on one core.
inline void PinTo(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(static_cast<std::size_t>(core), &cores);
  if (::sched_setaffinity(0, sizeof cores, &cores) != 0) Die("pin to a core");
}

// The smallest value that at least `part` (0 to 1) of them do not exceed, or the next; 0 of none.
inline double Quantile(std::vector<double> values, double part) {
  if (values.empty()) return 0;
  const auto count = static_cast<double>(values.size());
  const auto index = std::min(values.size() - 1, static_cast<std::size_t>(count * part));
  const auto place = values.begin() + static_cast<std::ptrdiff_t>(index);
  std::nth_element(values.begin(), place, values.end());
  return *place;
}
inline double Median(std::vector<double> values) { return Quantile(std::move(values), 0.5); }

// Microseconds that `body` takes.
template <typename Body>
double TimeUs(const Body& body) {
  const std::int64_t begin_ns = MonotonicNs();
  body();
  return static_cast<double>(MonotonicNs() - begin_ns) / 1000;
}

// Runs the bodies in turns, `rounds` times each, and gives each one's times in microseconds. The
// first round warms up and is not counted. warm_count: how often each is run before the time that
// counts, in each turn: what a server does after its client is done is then paid by its own kind.
inline std::vector<std::vector<double>> Interleave(int rounds,
                                                   const std::vector<std::function<void()>>& bodies,
                                                   int warm_count = 0) {
  std::vector<std::vector<double>> times(bodies.size());
  for (int round = 0; round <= rounds; ++round) {
    for (std::size_t i = 0; i < bodies.size(); ++i) {
      for (int k = 0; k < warm_count; ++k) bodies[i]();
      const double us = TimeUs(bodies[i]);
      if (round > 0) times[i].push_back(us);
    }
  }
  return times;
}

// Rows of a name, a value and a unit; printed as text, or as one JSON object with --json.
class Report {
 public:
  void Add(std::string name, double value, std::string unit) {
    rows_.push_back({std::move(name), value, std::move(unit)});
  }
  void Print(std::string_view bench, bool json) const {
    if (json) std::printf("{\"bench\":\"%s\"", std::string(bench).c_str());
    for (const Row& row : rows_) {
      if (json) {
        std::printf(",\"%s\":{\"value\":%.4f,\"unit\":\"%s\"}", row.name.c_str(), row.value,
                    row.unit.c_str());
      } else {
        std::printf("%-58s %12.3f %s\n", row.name.c_str(), row.value, row.unit.c_str());
      }
    }
    if (json) std::printf("}\n");
  }

 private:
  struct Row {
    std::string name;
    double value;
    std::string unit;
  };
  std::vector<Row> rows_;
};

// The value after `name` in the arguments, or `otherwise`.
inline std::string Option(int argc, char** argv, std::string_view name, std::string otherwise) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (argv[i] == name) return argv[i + 1];
  }
  return otherwise;
}
// Every one of them, for an option that may be given several times.
inline std::vector<std::string> Options(int argc, char** argv, std::string_view name) {
  std::vector<std::string> values;
  for (int i = 1; i + 1 < argc; ++i) {
    if (argv[i] == name) values.emplace_back(argv[i + 1]);
  }
  return values;
}
inline bool Flag(int argc, char** argv, std::string_view name) {
  return std::any_of(argv + 1, argv + argc, [&](const char* arg) { return arg == name; });
}

}  // namespace sticky::bench

#endif  // STICKY_BENCH_BENCH_UTIL_H_
