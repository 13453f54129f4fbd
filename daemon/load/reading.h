// How files are best read, by how much of them is in the page cache already.
//
// Thread: any thread.

#ifndef STICKY_DAEMON_LOAD_READING_H_
#define STICKY_DAEMON_LOAD_READING_H_

#include <cstdint>

namespace sticky::load {

struct Reading {
  int thread_count = 1;
  std::uint64_t piece_bytes = 0;  // read at once
  int maker_count = 1;            // threads that make pages present beside
};

// What is mostly in the cache is copied, which takes CPUs: a thread for each, pieces that stay in
// its cache. Else most threads wait for the disk: as many as it wants reads under way, each long.
// cpu_count: 1 or more.
Reading ChooseReading(std::uint64_t cached_bytes, std::uint64_t all_bytes, int cpu_count);

}  // namespace sticky::load

#endif  // STICKY_DAEMON_LOAD_READING_H_
