#include "tools/stickyctl/template_text.h"

#include <algorithm>
#include <vector>

#include "base/text.h"
#include "flatbuffers/wire_codec.h"

namespace sticky::stickyctl {
namespace {

constexpr std::string_view kHubPrefix = "models--";
constexpr std::string_view kDefaultName = "model";

std::vector<std::string_view> PartsOf(std::string_view path) {
  std::vector<std::string_view> parts;
  while (!path.empty()) {
    const std::size_t slash = std::min(path.find('/'), path.size());
    if (slash > 0) parts.push_back(path.substr(0, slash));
    path.remove_prefix(std::min(slash + 1, path.size()));
  }
  return parts;
}

std::string_view WithoutEnding(std::string_view name) {
  for (const std::string_view ending : {".safetensors", ".gguf"}) {
    if (name.ends_with(ending)) return name.substr(0, name.size() - ending.size());
  }
  return name;
}

// The part of the path that says what the model is.
std::string_view TellingPart(std::string_view path) {
  std::vector<std::string_view> parts = PartsOf(path);
  if (parts.empty()) return kDefaultName;
  // models--org--name, or models--org--name/snapshots/<revision>[/file]: the repository says more.
  for (std::size_t i = parts.size(); i-- > 0;) {
    if (!parts[i].starts_with(kHubPrefix)) continue;
    const std::size_t dashes = parts[i].rfind("--");
    return parts[i].substr(dashes + 2);
  }
  // model.safetensors is what every repository calls it.
  const std::string_view last = WithoutEnding(parts.back());
  if (last == kDefaultName && parts.size() > 1) return parts[parts.size() - 2];
  return last;
}

std::string SharesText(const std::vector<DtypeShare>& shares) {
  std::string text;
  for (const DtypeShare& share : shares) {
    text += (text.empty() ? "" : ", ") + share.dtype + " " + ByteCount(share.size_bytes) +
            Format(" (%u)", share.tensor_count);
  }
  return text.empty() ? "none" : text;
}

// What was found, as comments.
std::string Findings(const TemplateFacts& facts, const ModelLook& model) {
  const std::string what = model.architecture.empty()
                               ? "no language model: its tensors are taken as they are"
                               : Printable(model.architecture) +
                                     Format(", context of %d positions", model.context_length);
  std::string text =
      Format("# format:        %s, %zu %s, %s\n", model.format.c_str(), facts.weights_count,
             facts.weights_count == 1 ? "file" : "files", ByteCount(facts.weights_bytes).c_str());
  text += "# architecture:  " + what + "\n";
  text += Format("# tensors:       %u\n", model.tensor_count);
  text += "# in the files:  " + SharesText(model.stored) + "\n";
  text += "# in the state:  " + SharesText(model.arena) + "\n";
  text += "# memory:        " + ByteCount(model.arena_bytes) + " with dtype auto, which is " +
          (model.architecture.empty() ? "as stored" : Name(facts.auto_dtype)) + " here\n";
  for (const std::string& note : model.notes) text += "# note: " + Printable(note) + "\n";
  return text;
}

std::string SourceKeys(const TemplateFacts& facts, const std::string& quoted_path) {
  std::string text =
      "source:\n"
      "  path: " +
      quoted_path +
      "\n"
      "  # In place of the path: a list of paths, of which the first that is there is taken\n"
      "  #   (path: [A, B]); the files of one model (paths: [A, B]); or files to keep whole\n"
      "  #   (files: [A, {name: N, path: B}]).\n"
      "  # What the files are expected to be; each may be left out:\n"
      "  # expect:\n"
      "  #   bytes: " +
      std::to_string(facts.weights_bytes) + "      # of the weight files together\n";
  text +=
      facts.blob_sha256
          ? "  #   sha256: " + ToHex(*facts.blob_sha256) + "\n"
          : "  #   sha256: 64 digits      # `stickyctl template check FILE --sha256` tells them\n";
  return text + "  #   digest: 32 digits      # the content digest that `stickyctl show` tells\n";
}

constexpr const char* kOtherKeys = R"(
# device: host            # where the state lives
dtype: auto               # what this node's CPU multiplies best; or bf16, f16, f32

lifetime:
  # pin: false            # true: never evicted for want of memory, kept when its last hold ends
  # idle: 1h              # evicted when nobody has leased it for so long; left out: never
  # ttl: 7d               # drained so long after it was ready; left out: never

# priority: 0             # -100 to 100; when memory is short, lower goes first

access:                   # whom the state is for besides you
  # mode: owner           # nobody; group: your primary group; node: everybody
  # users: []             # these too, by name or number
  # groups: []            # and the members of these

# labels: {}              # words of your own, as team: blue; told by the daemon, used for nothing
# max_leases: 1048576     # leases at once; left out: the node's limit alone

memory:
  # huge_pages: false     # true: take them from the node's reserved pool when it has room
  # prefault: true        # make the pages present before they are written

# build: manual           # of an installed template; or on-demand, at-start
)";

}  // namespace

std::string StateNameFor(std::string_view path) {
  std::string name;
  for (const char c : TellingPart(path)) {
    const bool fits = wire::CheckStateName("a" + std::string(1, c)).ok();
    if (fits || (!name.empty() && name.back() != '-')) name += fits ? c : '-';
  }
  const auto starts = [](char c) { return wire::CheckStateName(std::string(1, c)).ok(); };
  name.erase(name.begin(), std::find_if(name.begin(), name.end(), starts));
  name.resize(std::min<std::size_t>(name.size(), wire::kStateNameBytesMax));
  while (!name.empty() && name.back() == '-') name.pop_back();
  return name.empty() ? std::string(kDefaultName) : name;
}

Result<std::string> YamlQuoted(std::string_view text) {
  if (!IsUtf8(text)) {
    return Error{Code::kInvalidArgument,
                 "'" + Escape(text) + "' is not UTF-8, which a template cannot name"};
  }
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += std::string("\\") + c;
    } else if (byte < 0x20 || byte == 0x7F) {
      out += Format("\\x%02x", byte);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

Result<std::string> TemplateText(const TemplateFacts& facts, const ModelLook& model) {
  if (facts.path.find("${") != std::string::npos) {
    return Error{Code::kInvalidArgument,
                 "'" + Escape(facts.path) +
                     "' has '${' in it, which a template takes for a variable; make a link to it "
                     "with another name"};
  }
  STICKY_ASSIGN(const std::string quoted, YamlQuoted(facts.path));
  const std::string name = StateNameFor(facts.path);
  return "# How to build the state '" + name +
         "', as `stickyctl template init` found its model:\n" + Findings(facts, model) +
         "# A key behind a '#' stands at its default. docs/templates.md says more of each.\n"
         "# Check what you change: stickyctl template check FILE\n\n"
         "name: " +
         name + "\n\n" + SourceKeys(facts, quoted) + kOtherKeys;
}

}  // namespace sticky::stickyctl
