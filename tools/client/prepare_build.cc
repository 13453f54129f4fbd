#include "tools/client/prepare_build.h"

#include <utility>

#include "base/text.h"
#include "config/template.h"
#include "tools/client/prepare_load.h"

namespace sticky::client {
namespace {

constexpr std::size_t kCommandTextBytesMax = 1000;

Failed Usage(Error error) { return Failed{Stage::kUsage, std::move(error)}; }

Outcome<config::BuildTemplate> ReadTemplate(const BuildWish& wish) {
  Result<config::BuildTemplate> made = config::LoadBuildTemplate(*wish.template_path);
  if (!made.ok()) {
    Error error = made.error();
    error.message = "read a template for a build: " + error.message;
    return Failed{Stage::kTemplate, error};
  }
  if (wish.name && *wish.name != made.value().name) {
    return Failed{Stage::kTemplate,
                  Error{Code::kInvalidArgument,
                        "build '" + *wish.name + "': template '" + Escape(*wish.template_path) +
                            "' is for a state called '" + Escape(made.value().name) +
                            "'; leave out --name, or give another template"}};
  }
  return std::move(made).value();
}

}  // namespace

Outcome<wire::BuildRequest> PrepareBuild(const BuildWish& wish) {
  for (const std::optional<std::string>& name : {wish.name, wish.base}) {
    if (!name) continue;
    if (const Status named = wire::CheckStateName(*name); !named.ok()) return Usage(named.error());
  }
  if (!wish.name && !wish.template_path) {
    return Usage(Error{Code::kInvalidArgument,
                       "--name NAME or --template FILE is missing: the state to build"});
  }
  wire::BuildRequest request;
  request.state = wish.name.value_or("");
  if (wish.template_path) {
    STICKY_STEP(config::BuildTemplate made, ReadTemplate(wish));
    request.state = std::move(made.name);
    request.policy = std::move(made.policy);
  }
  request.placement = wish.placement;
  request.base = wish.base;
  request.builder = CommandText(wish.command);
  return request;
}

Digest RecipeDigest(const std::string& state, const BuildWish& wish,
                    const std::optional<Digest>& base_digest) {
  std::string text = "build=" + state + "\nbase=" + wish.base.value_or("") + "\n";
  if (base_digest) text += "base.digest=" + ToHex(*base_digest) + "\n";
  for (const std::string& word : wish.command) {
    text += "word=" + std::to_string(word.size()) + ":" + word + "\n";
  }
  return config::TemplateDigest(text);
}

std::string CommandText(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  if (text.size() <= kCommandTextBytesMax) return text;
  return text.substr(0, kCommandTextBytesMax) + "...";
}

}  // namespace sticky::client
