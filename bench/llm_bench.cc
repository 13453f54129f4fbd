// Measures verifying claims with sticky-llm, three ways in turns: a process for each claim that
// attaches, one resident process that answers the same claims one by one, and a process for each
// claim that loads the model. The floor is a process with the same libraries that attaches and
// touches every page (llm_probe).
//
// usage: llm_bench --socket PATH --state NAME --model FILE --claims FILE
//                  [--count N] [--rounds N] [--json]
// The daemon that answers at --socket must hold --state, built from --model. The programs are those
// of the build that this one belongs to.

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bench_util.h"

namespace sticky::bench {
namespace {

namespace fs = std::filesystem;

void Run(std::vector<std::string> arguments) {
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t quiet;
  posix_spawn_file_actions_init(&quiet);
  posix_spawn_file_actions_addopen(&quiet, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t pid = -1;
  if (::posix_spawn(&pid, argv[0], &quiet, nullptr, argv.data(), environ) != 0) Die(argv[0]);
  posix_spawn_file_actions_destroy(&quiet);
  int status = 0;
  if (::waitpid(pid, &status, 0) != pid || status != 0) {
    std::fprintf(stderr, "%s has failed\n", argv[0]);
    std::exit(1);
  }
}

// The claims, in a folder that goes with this: all in one file, and each in its own.
class Claims {
 public:
  Claims(const std::string& path, std::size_t count) {
    std::string folder = (fs::temp_directory_path() / "stkXXXXXX").string();
    if (::mkdtemp(folder.data()) == nullptr) Die("make a folder");
    folder_ = folder;
    std::ifstream in(path);
    std::ofstream all(folder_ / "all");
    for (std::string line; files_.size() < count && std::getline(in, line);) {
      files_.push_back((folder_ / std::to_string(files_.size())).string());
      std::ofstream(files_.back()) << line << "\n";
      all << line << "\n";
    }
    if (files_.size() < count) {
      std::fprintf(stderr, "%s has only %zu claims\n", path.c_str(), files_.size());
      std::exit(1);
    }
  }
  ~Claims() { fs::remove_all(folder_); }
  Claims(const Claims&) = delete;
  Claims& operator=(const Claims&) = delete;

  // Verdicts are removed each time: what is done already would not be done again.
  void VerifyEach(const std::string& program, const std::vector<std::string>& source) const {
    for (const std::string& file : files_) Verify(program, source, file);
  }
  void VerifyAll(const std::string& program, const std::vector<std::string>& source) const {
    Verify(program, source, (folder_ / "all").string());
  }

 private:
  static void Verify(const std::string& program, const std::vector<std::string>& source,
                     const std::string& file) {
    const std::string output = file + ".verdicts";
    fs::remove(output);
    std::vector<std::string> arguments = {program, "verify",  "--input", file,    "--output",
                                          output,  "--batch", "1",       "--json"};
    arguments.insert(arguments.end(), source.begin(), source.end());
    Run(std::move(arguments));
  }

  fs::path folder_;
  std::vector<std::string> files_;
};

int Main(int argc, char** argv) {
  const auto count = std::stoul(Option(argc, argv, "--count", "100"));
  const int rounds = std::stoi(Option(argc, argv, "--rounds", "3"));
  const std::string state = Option(argc, argv, "--state", "");
  const std::string model = Option(argc, argv, "--model", "");
  const Claims claims(Option(argc, argv, "--claims", ""), count);
  ::setenv("STICKYINVOC_SOCKET", Option(argc, argv, "--socket", "").c_str(), 1);
  ::setenv("STICKYINVOC_STATE", state.c_str(), 1);
  ::unsetenv("STICKYINVOC_LEASE");

  const fs::path here = fs::read_symlink("/proc/self/exe").parent_path();
  const std::string probe = here / "llm_probe";
  const std::string program = here.parent_path() / "bin/sticky-llm";
  const std::string module = here.parent_path() / "lib/stickyinvoc/engine_cpu.so";
  const std::vector<std::string> sticky = {"--state", state};
  const auto times = Interleave(rounds, {[&] {
                                           for (std::size_t i = 0; i < count; ++i)
                                             Run({probe, module});
                                         },
                                         [&] { claims.VerifyEach(program, sticky); },
                                         [&] { claims.VerifyAll(program, sticky); },
                                         [&] {
                                           claims.VerifyEach(program, {"--model", model});
                                         }});
  std::vector<double> ms;
  for (const auto& each : times) ms.push_back(Median(each) / 1000 / static_cast<double>(count));
  Report report;
  report.Add("floor: same libraries, attach, touch every page", ms[0], "ms a claim");
  report.Add("sticky: a process for each claim", ms[1], "ms a claim");
  report.Add("resident: one process, one by one", ms[2], "ms a claim");
  report.Add("create-destroy: a process for each claim", ms[3], "ms a claim");
  report.Add("(sticky - resident) / floor", (ms[1] - ms[2]) / ms[0], "(must reach 2)");
  report.Add("create-destroy / sticky", ms[3] / ms[1], "(aim 3)");
  report.Print("llm", Flag(argc, argv, "--json"));
  return 0;
}

}  // namespace
}  // namespace sticky::bench

int main(int argc, char** argv) { return sticky::bench::Main(argc, argv); }
