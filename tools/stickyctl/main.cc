// stickyctl: the status CLI. Options in, one command out.

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>

#include <CLI/CLI.hpp>

#include "flatbuffers/wire_codec.h"
#include "tools/client/exit_codes.h"
#include "tools/stickyctl/commands.h"

namespace sticky::tools {
namespace {

// --wait[=SECONDS] and what it means in milliseconds; 0 when it was not given.
struct Wait {
  double seconds = 0;
  std::uint32_t ms() const { return static_cast<std::uint32_t>(std::lround(seconds * 1000)); }
};

void AddWait(CLI::App* command, Wait& wait, const std::string& what) {
  static_assert(kDefaultWaitMs == 600'000, "the flag's default below is in seconds");
  command->add_flag("--wait{600}", wait.seconds, what + ", for at most --wait=SECONDS (600)")
      ->check(CLI::Range(0.001, wire::kWaitMsMax / 1000.0));
}

class Program {
 public:
  Program() : app_("stickyctl: what states this node holds, and what is to become of them") {
    app_.require_subcommand(1);
    app_.fallthrough();
    app_.add_option("--socket", common_.socket_path,
                    "the daemon's socket; else $STICKYINVOC_SOCKET, else "
                    "$XDG_RUNTIME_DIR/stickyinvoc/stickyd.sock, else "
                    "/run/stickyinvoc/stickyd.sock");
    app_.add_flag("--json", common_.json, "print facts, and errors, as one JSON object");
    AddLoads();
    AddQuestions();
    AddRun();
    app_.footer(
        "Exit codes: 0 done, 64 usage, 65 bad input, 66 no such input or state, 69 no\n"
        "daemon, 70 a bug, 75 try again, 77 not allowed; `run` has its command's own.");
  }

  int Main(int argc, char** argv) {
    try {
      app_.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      const int code = app_.exit(error);
      return code == 0 ? kExitOk : kExitUsage;
    }
    return chosen_();
  }

 private:
  void AddLoads() {
    CLI::App* const load = app_.add_subcommand("load", "build a state from a template");
    load->add_option("TEMPLATE", load_.template_path, "the template's file")->required();
    AddWait(load, load_wait_, "wait until it is ready");
    load->callback([this] {
      chosen_ = [this] {
        load_.wait_ms = load_wait_.ms();
        return Load(common_, load_);
      };
    });
    CLI::App* const hold = app_.add_subcommand(
        "hold", "build a state and keep it until this is ended (a sticky task)");
    hold->add_option("TEMPLATE", load_.template_path, "the template's file")->required();
    AddWait(hold, hold_wait_, "wait until it is ready");
    hold->callback([this] {
      chosen_ = [this] {
        load_.wait_ms = hold_wait_.ms() != 0 ? hold_wait_.ms() : kDefaultWaitMs;
        return Hold(common_, load_);
      };
    });
  }

  void AddQuestions() {
    app_.add_subcommand("ls", "list the states")->callback([this] {
      chosen_ = [this] { return List(common_); };
    });
    app_.add_subcommand("status", "say how the daemon is")->callback([this] {
      chosen_ = [this] { return DaemonStatus(common_); };
    });
    app_.add_subcommand("leases", "list who holds what")->callback([this] {
      chosen_ = [this] { return Leases(common_); };
    });
    app_.add_subcommand("version", "say which versions these are")->callback([this] {
      chosen_ = [this] { return Version(common_); };
    });
    CLI::App* const show = app_.add_subcommand("show", "say all about one state");
    show->add_option("NAME", state_, "the state's name")->required();
    show->add_flag("--tensors", tensors_, "list its tensors as well");
    show->callback([this] { chosen_ = [this] { return Show(common_, state_, tensors_); }; });
    CLI::App* const evict =
        app_.add_subcommand("evict", "free a state; one that is in use drains first");
    evict->add_option("NAME", state_, "the state's name")->required();
    AddWait(evict, evict_wait_, "wait until it is gone");
    evict->callback(
        [this] { chosen_ = [this] { return Evict(common_, state_, evict_wait_.ms()); }; });
  }

  void AddRun() {
    CLI::App* const run = app_.add_subcommand(
        "run", "run a command that has a lease on a state from its first moment on");
    run->add_option("--state", run_.state, "the state's name")->required();
    run->add_option("--template", run_.template_path, "build the state from this when need be");
    AddWait(run, run_wait_, "wait until the state is ready");
    run->add_option("COMMAND", run_.command, "the command and its arguments, behind --")
        ->required();
    run->callback([this] {
      chosen_ = [this] {
        run_.wait_ms = run_wait_.ms();
        return Run(common_, run_);
      };
    });
  }

  CLI::App app_;
  Common common_;
  LoadOptions load_;
  RunOptions run_;
  std::string state_;
  bool tensors_ = false;
  Wait load_wait_, hold_wait_, evict_wait_, run_wait_;
  std::function<int()> chosen_;
};

}  // namespace
}  // namespace sticky::tools

int main(int argc, char** argv) { return sticky::tools::Program().Main(argc, argv); }
