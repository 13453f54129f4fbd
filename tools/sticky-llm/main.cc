// sticky-llm: the LLM invocation. Attaches to a state (or loads privately), does one task, exits.

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <iterator>
#include <string>
#include <string_view>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/exit_codes.h"
#include "base/text.h"
#include "tools/client/standard_streams.h"
#include "tools/sticky-llm/clock.h"
#include "tools/sticky-llm/generate.h"
#include "tools/sticky-llm/session.h"
#include "tools/sticky-llm/verify.h"

namespace sticky::llm {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kPromptBytesMax = 16u << 20;

struct Options {
  std::string state;
  std::string model;
  std::string socket;
  std::string dtype = "auto";
  double wait_seconds = 0;
  int threads = 0;
  bool json = false;
  bool timings = false;
  GenerateOptions generate;
  CLI::Option* prompt = nullptr;
  VerifyOptions verify;
};

void PrintJson(const Json& facts) {
  Json whole = {{"schema_version", 1}};
  whole.update(facts);
  std::printf("%s\n", whole.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
}

int Fail(const Options& options, const Error& error, Stage stage) {
  const int exit_code = ExitCode(stage, error.code);
  if (options.json) {
    PrintJson({{"error",
                {{"code", Name(error.code)},
                 {"message", error.message},
                 {"os_code", error.os_code},
                 {"exit_code", exit_code}}}});
  }
  std::fprintf(stderr, "sticky-llm: %s\n", Printable(error.message).c_str());
  return exit_code;
}

// Where an attach failed decides what a scheduler can do about it: no socket is no daemon.
Stage StageOf(const Options& options, const Error& error) {
  if (!options.model.empty()) return Stage::kModel;
  if (error.code == Code::kInvalidArgument) return Stage::kUsage;  // the name, or the socket's path
  const bool no_daemon = error.code == Code::kUnavailable &&
                         (error.os_code == ENOENT || error.os_code == ECONNREFUSED);
  return no_daemon ? Stage::kConnect : Stage::kAnswer;
}

// Under `stickyctl run` the state is told by the environment.
void UseInheritedState(Options& options) {
  if (!options.state.empty() || !options.model.empty()) return;
  // NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread of ours has been started.
  const char* const state = std::getenv("STICKYINVOC_STATE");
  if (state != nullptr) options.state = state;
}

DtypeChoice DtypeOf(const std::string& text) {
  for (int i = 0; i < kDtypeChoiceCount; ++i) {
    if (text == Name(static_cast<DtypeChoice>(i))) return static_cast<DtypeChoice>(i);
  }
  return DtypeChoice::kAuto;  // CLI has checked the word
}

Result<Session> OpenSession(const Options& options, Clock& clock) {
  SessionOptions session;
  session.thread_count = options.threads;
  if (!options.model.empty()) {
    session.load = PrivateLoadOptions{options.model, DtypeOf(options.dtype), options.threads};
  } else {
    session.attach = AttachOptions{options.state, options.socket,
                                   static_cast<std::uint32_t>(options.wait_seconds * 1000)};
  }
  return Session::Open(session, clock);
}

int InterruptedExitCode() { return 128 + interrupted_by; }

// Hands everything to the kernel; what was computed and not taken is not a success.
int Finish(int exit_code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return exit_code;
  // NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread of ours calls it.
  std::fprintf(stderr, "sticky-llm: write to standard output: %s\n", std::strerror(errno));
  return exit_code == kExitOk ? kExitOutput : exit_code;
}

void PrintTimings(const Options& options, const Clock& clock) {
  if (!options.timings || options.json) return;
  std::fflush(stdout);  // its own lines first
  std::fprintf(stderr, "timings: %s\n", clock.ToJson().dump().c_str());
}

int RunGenerate(Options& options) {
  Clock clock;
  if (options.prompt->count() == 0) {
    options.generate.prompt.assign(std::istreambuf_iterator<char>(std::cin), {});
    if (options.generate.prompt.size() > kPromptBytesMax) {
      return Fail(options,
                  Error{Code::kInvalidArgument,
                        Format("read the prompt: more than %zu bytes", kPromptBytesMax)},
                  Stage::kModel);
    }
  }
  WatchForInterrupts();
  Result<Session> session = OpenSession(options, clock);
  if (!session.ok()) return Fail(options, session.error(), StageOf(options, session.error()));
  const auto stream = [&](std::string_view text) {
    if (options.json) return;
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  };
  const Result<Generated> made = Generate(session.value(), options.generate, clock, stream);
  if (!made.ok()) return Fail(options, made.error(), Stage::kModel);
  if (options.json) {
    PrintJson({{"text", made.value().text},
               {"prompt_ids", made.value().prompt_ids},
               {"ids", made.value().ids},
               {"finish_reason", made.value().finish_reason},
               {"seed", options.generate.sampler.seed},
               {"content_digest", ToHex(session.value().source().content_digest())},
               {"shared", session.value().source().shared()},
               {"kv_cache_bytes", made.value().kv_cache_bytes},
               {"timings", clock.ToJson()}});
  } else {
    std::fputc('\n', stdout);
  }
  PrintTimings(options, clock);
  return Finish(made.value().finish_reason == "interrupted" ? InterruptedExitCode() : kExitOk);
}

int RunVerify(Options& options) {
  Clock clock;
  WatchForInterrupts();
  Result<Session> session = OpenSession(options, clock);
  if (!session.ok()) return Fail(options, session.error(), StageOf(options, session.error()));
  const auto on_bad_line = [&](std::int64_t number, const Error& error) {
    std::fprintf(stderr, "sticky-llm: %s:%lld: %s; passed over\n",
                 Escape(options.verify.input_path).c_str(), static_cast<long long>(number),
                 Printable(error.message).c_str());
  };
  const bool terminal = ::isatty(STDERR_FILENO) == 1;
  const auto on_progress = [&](const VerifySummary& summary) {
    if (!terminal) return;
    std::fprintf(stderr, "\r%lld claims\033[K", static_cast<long long>(summary.claim_count));
  };
  client::Outcome<VerifySummary> done =
      Verify(session.value(), options.verify, clock, on_bad_line, on_progress);
  if (terminal) std::fputs("\r\033[K", stderr);
  if (!done.ok()) return Fail(options, done.failed().error, done.failed().stage);
  const VerifySummary& summary = done.value();
  const double accuracy = summary.labelled_count == 0
                              ? 0
                              : static_cast<double>(summary.correct_count) /
                                    static_cast<double>(summary.labelled_count);
  if (options.json) {
    PrintJson({{"claims", summary.claim_count},
               {"resumed_claims", summary.resumed_count},
               {"bad_lines", summary.bad_line_count},
               {"labelled_claims", summary.labelled_count},
               {"correct_claims", summary.correct_count},
               {"accuracy", summary.labelled_count == 0 ? Json(nullptr) : Json(accuracy)},
               {"interrupted", summary.interrupted},
               {"output", options.verify.output_path},
               {"content_digest", ToHex(session.value().source().content_digest())},
               {"shared", session.value().source().shared()},
               {"timings", clock.ToJson()}});
  } else {
    const std::string right =
        summary.labelled_count == 0
            ? "none labelled"
            : Format("%lld of %lld labelled ones right (%.1f%%)",
                     static_cast<long long>(summary.correct_count),
                     static_cast<long long>(summary.labelled_count), 100 * accuracy);
    std::printf("%lld claims%s, %s, %lld bad lines%s\n",
                static_cast<long long>(summary.claim_count),
                summary.resumed_count > 0 ? " (some from an earlier run)" : "", right.c_str(),
                static_cast<long long>(summary.bad_line_count),
                summary.interrupted ? "; interrupted, the same command goes on from here" : "");
  }
  PrintTimings(options, clock);
  return Finish(summary.interrupted ? InterruptedExitCode() : kExitOk);
}

void AddSource(CLI::App* command, Options& options) {
  CLI::Option_group* const source = command->add_option_group("where the model is");
  source->add_option("--state", options.state,
                     "a state on this node, as `stickyctl ls` shows it; else $STICKYINVOC_STATE");
  CLI::Option* const model = source->add_option(
      "--model", options.model, "a model's file or folder, loaded by this process for itself");
  source->require_option(0, 1);
  command->add_option("--socket", options.socket, "with a state: the daemon's socket")
      ->excludes(model);
  command->add_option("--wait", options.wait_seconds, "with a state: seconds to wait for its load")
      ->check(CLI::Range(0.0, 86400.0))
      ->excludes(model);
  command->add_option("--dtype", options.dtype, "with --model: auto, bf16, f16 or f32")
      ->check(CLI::IsMember({"auto", "bf16", "f16", "f32"}))
      ->needs(model);
  command->add_option("--threads", options.threads, "threads; else as many as this may run on")
      ->check(CLI::Range(1, 1024));
  command->add_flag("--timings", options.timings, "print the three clocks on stderr");
  command->add_flag("--json", options.json, "print one JSON object, timings included");
}

void AddGenerate(CLI::App& app, Options& options, std::function<int()>& chosen) {
  CLI::App* const command = app.add_subcommand("generate", "continue a prompt");
  AddSource(command, options);
  GenerateOptions& generate = options.generate;
  options.prompt = command->add_option("--prompt", generate.prompt, "the prompt; else stdin");
  CLI::Option* const chat =
      command->add_flag("--chat", generate.chat, "the prompt is a user's turn of a conversation");
  command->add_option("--system", generate.system, "with --chat: a system turn before it")
      ->needs(chat);
  command->add_option("-n,--tokens", generate.token_count_max, "at most so many tokens (128)")
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--temperature", generate.sampler.temperature, "0 (greedy) is the default")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--top-p", generate.sampler.top_p, "of the probability, 1 is the default")
      ->check(CLI::Range(0.0, 1.0));
  command->add_option("--top-k", generate.sampler.top_k, "best tokens, 0 (all) is the default")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--seed", generate.sampler.seed, "the same seed gives the same text");
  command->add_option("--stop", generate.stop_texts, "end before this text; may be repeated");
  command->callback([&] { chosen = [&] { return RunGenerate(options); }; });
}

void AddVerify(CLI::App& app, Options& options, std::function<int()>& chosen) {
  CLI::App* const command = app.add_subcommand("verify", "judge claims");
  AddSource(command, options);
  VerifyOptions& verify = options.verify;
  command->add_option("--input", verify.input_path, "claims, one JSON object a line")->required();
  command->add_option("--output", verify.output_path, "verdicts, one JSON object a line")
      ->required();
  command->add_option("--batch", verify.batch, "claims at a time (1)")
      ->check(CLI::Range(1, kBatchMax));
  command->add_option("--limit", verify.limit, "only the first so many claims")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  command->add_flag("--strict", verify.strict, "a bad line ends the run");
  command->callback([&] { chosen = [&] { return RunVerify(options); }; });
}

int Main(int argc, char** argv) {
  CLI::App app("sticky-llm: one short LLM task on a state that stays");
  Options options;
  std::function<int()> chosen;
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("sticky-llm ") + STICKY_VERSION);
  AddGenerate(app, options, chosen);
  AddVerify(app, options, chosen);
  app.footer(
      "Exit codes: 0 done, 64 usage, 65 bad input, 66 no such input or state, 69 no daemon,\n"
      "70 a bug, 74 output not taken, 75 try again, 77 not allowed, 130 and 143 interrupted.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return Finish(app.exit(error));  // --help, --version
    options.json = std::any_of(argv, argv + argc, [](std::string_view word) {
      return word == "--json";  // it may not have been reached
    });
    return Fail(
        options,
        Error{Code::kInvalidArgument, std::string("read the command line: ") + error.what() +
                                          "; `sticky-llm --help` tells the commands"},
        Stage::kUsage);
  }
  UseInheritedState(options);
  if (options.state.empty() && options.model.empty()) {
    return Fail(options,
                Error{Code::kInvalidArgument,
                      "find a model: give --state NAME, --model PATH, or $STICKYINVOC_STATE"},
                Stage::kUsage);
  }
  return chosen();
}

}  // namespace
}  // namespace sticky::llm

// NOLINTNEXTLINE(bugprone-exception-escape): what CLI11 throws before it parses is a bug of ours.
int main(int argc, char** argv) {
  sticky::client::FillStandardStreams();
  return sticky::llm::Main(argc, argv);
}
