#include "tools/sticky-llm/session.h"

#include <algorithm>
#include <csignal>
#include <string_view>

#include "engine/module.h"
#include "weights/model_config.h"

namespace sticky::llm {

volatile int interrupted_by = 0;

void WatchForInterrupts() {
  struct sigaction action {};
  action.sa_handler = [](int signal) { interrupted_by = signal; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // a second one ends the process at once
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

namespace {

std::string_view TextOf(const ModelSource& source, std::string_view asset) {
  const auto bytes = source.FindAsset(asset);
  if (!bytes) return {};
  return {reinterpret_cast<const char*>(bytes->data()), bytes->size()};
}

}  // namespace

Result<Session> Session::Open(const SessionOptions& options, Clock& clock) {
  Session session;
  if (options.attach) {
    STICKY_ASSIGN(session.source_, AttachModel(*options.attach));
  } else {
    STICKY_ASSIGN(session.source_, LoadPrivately(*options.load));
  }
  clock.Attached();
  const ModelSource& source = *session.source_;
  const std::string_view config_json = TextOf(source, "config.json");
  if (config_json.empty()) {
    return Error{Code::kInvalidArgument,
                 "use the state as a language model: it has no config.json, so it is none"};
  }
  STICKY_ASSIGN(const weights::ModelConfig config,
                weights::ParseModelConfig(config_json, TextOf(source, "generation_config.json")));
  const auto vocabulary_bytes = source.FindAsset("vocabulary");
  if (!vocabulary_bytes) {
    return Error{Code::kInvalidArgument,
                 "use the model's tokenizer: it has none that is supported (byte-level BPE); "
                 "`stickyctl show NAME --tensors` tells why under note"};
  }
  STICKY_ASSIGN(const weights::Vocabulary vocabulary, weights::Vocabulary::Open(*vocabulary_bytes));
  STICKY_ASSIGN(session.tokenizer_, engine::Tokenizer::Open(vocabulary));
  engine::ModuleOptions module;
  module.thread_count = options.thread_count;
  STICKY_ASSIGN(session.ops_, engine::OpenModule("cpu", module));
  STICKY_ASSIGN(session.model_, engine::Model::Open(config, source, *session.ops_));
  return session;
}

Result<engine::ChatTemplate> Session::Chat() const {
  return engine::ChatTemplate::Recognise(TextOf(*source_, "chat_template"));
}

bool Session::IsStop(std::int32_t token) const {
  const std::vector<int>& stops = model_->config().stop_tokens;
  if (std::find(stops.begin(), stops.end(), token) != stops.end()) return true;
  const auto eos = vocabulary().eos();
  return eos && static_cast<std::int32_t>(*eos) == token;
}

}  // namespace sticky::llm
